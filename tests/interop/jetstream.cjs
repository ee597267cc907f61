// Use streams, keys and objects with JavaScript clients (npm packages @nats-io/*): node jetstream.cjs <url>.
// Print the outcome of each scenario as JSON, or {"error": the reason}.
"use strict";

const { connect, headers, nuid } = require("@nats-io/transport-node");
const { AckPolicy, DeliverPolicy, jetstream, jetstreamManager } = require("@nats-io/jetstream");
const { Kvm } = require("@nats-io/kv");
const { Objm } = require("@nats-io/obj");
const { createHash, randomBytes } = require("node:crypto");

const numbers = (count, first = 0) => Array.from({ length: count }, (_, i) => `${first + i}`);

async function refused(promise) {
  try {
    await promise;
    return "accepted";
  } catch (error) {
    return error.code || error.message;
  }
}

async function take(iterator, count, each = (message) => message) {
  const found = [];
  if (count === 0) return found;
  for await (const message of iterator) {
    found.push(await each(message));
    if (found.length === count) break;
  }
  return found;
}

async function stream(jsm, config = {}) {
  const name = nuid.next();
  await jsm.streams.add({ name, subjects: [`${name}.*`], ...config });
  return name;
}

const scenarios = {
  async publish({ js, jsm }) {
    const name = await stream(jsm, { storage: "memory" });
    const one = await js.publish(`${name}.a`, "one", { msgID: "1" });
    const again = await js.publish(`${name}.a`, "one", { msgID: "1" });
    const wrong = await refused(js.publish(`${name}.a`, "two", { expect: { lastSequence: 7 } }));
    const acks = await Promise.all(numbers(200).map((n) => js.publish(`${name}.b`, n)));
    const batch = await jsm.streams.update(name, { allow_atomic: true }).then(() => js.startBatch(`${name}.c`, "x"));
    await batch.add(`${name}.c`, "y", { ack: true });
    const committed = await batch.commit(`${name}.c`, "z");
    const { state } = await jsm.streams.info(name, { subjects_filter: ">" });
    return {
      first: [one.seq, one.duplicate, again.duplicate, wrong],
      acks: acks.map((ack) => ack.seq),
      batch: [committed.count, committed.seq],
      subjects: Object.values(state.subjects),
    };
  },

  async pull({ js, jsm }) {
    const name = await stream(jsm);
    await Promise.all(numbers(100).map((n) => js.publish(`${name}.a`, n)));
    await jsm.consumers.add(name, { durable_name: "D", ack_policy: AckPolicy.Explicit });
    const consumer = await js.consumers.get(name, "D");
    const ack = (message) => (message.ack(), message.string());
    const fetched = await take(await consumer.fetch({ max_messages: 40 }), 40, ack);
    const next = ack(await consumer.next());
    const again = await consumer.next();
    again.nak();
    const consumed = await take(await consumer.consume({ max_messages: 10 }), 59, ack);
    const nobody = await consumer.next({ expires: 1000 });
    const info = await consumer.info();
    return {
      fetched,
      next,
      again: again.string(),
      consumed: consumed.map(Number).sort((a, b) => a - b).map(String),
      nobody,
      left: [info.num_pending, info.num_ack_pending],
    };
  },

  async ordered({ js, jsm }) {
    const name = await stream(jsm);
    await Promise.all(numbers(300).map((n) => js.publish(`${name}.${n % 2}`, n)));
    const all = await js.consumers.get(name);
    const half = await js.consumers.get(name, { filter_subjects: `${name}.1` });
    const pushed = await js.consumers.getPushConsumer(name, { deliver_policy: DeliverPolicy.StartSequence, opt_start_seq: 101 });
    const text = (message) => message.string();
    return {
      consumed: await take(await all.consume(), 300, text),
      fetched: await take(await half.fetch({ max_messages: 150 }), 150, text),
      pushed: await take(await pushed.consume(), 200, text),
    };
  },

  async push({ js, jsm, nc }) {
    const name = await stream(jsm);
    const payload = new Uint8Array(4096);
    await Promise.all(numbers(500).map(() => js.publish(`${name}.a`, payload)));
    await jsm.consumers.add(name, {
      durable_name: "P",
      deliver_subject: nuid.next(),
      flow_control: true,
      idle_heartbeat: 500_000_000,
      ack_policy: AckPolicy.Explicit,
    });
    const consumer = await js.consumers.getPushConsumer(name, "P");
    const sequences = await take(await consumer.consume(), 500, (message) => (message.ack(), message.seq));
    await nc.flush();
    return { sequences, acked: (await consumer.info()).ack_floor.stream_seq };
  },

  async copies({ js, jsm }) {
    const name = await stream(jsm);
    await jsm.streams.add({ name: `${name}M`, mirror: { name }, mirror_direct: true });
    await jsm.streams.add({
      name: `${name}S`,
      sources: [{ name, subject_transforms: [{ src: `${name}.b`, dest: `sourced.${name}` }] }],
    });
    for (const subject of "abc") await js.publish(`${name}.${subject}`, subject);
    const shown = (message) => [message.subject.replace(name, "NAME"), message.string()];
    const [mirror, source] = await Promise.all([`${name}M`, `${name}S`].map((each) => js.consumers.get(each)));
    return {
      mirror: await take(await mirror.consume(), 3, shown),
      source: await take(await source.consume(), 1, shown),
    };
  },

  async direct({ js, jsm }) {
    const name = await stream(jsm, { allow_direct: true });
    const sent = headers();
    sent.append("Key", "one");
    sent.append("Key", "two");
    for (const n of numbers(6)) await js.publish(`${name}.${n % 3}`, n, { headers: sent });
    const one = await jsm.direct.getMessage(name, { seq: 2 });
    const last = await jsm.direct.getMessage(name, { last_by_subj: `${name}.0` });
    const batch = await jsm.direct.getBatch(name, { seq: 2, batch: 3 });
    const lasts = await jsm.direct.getLastMessagesFor(name, { multi_last: [`${name}.>`] });
    const none = await jsm.direct.getMessage(name, { seq: 9 });
    const text = (message) => message.string();
    return {
      one: [one.seq, one.string(), one.header.values("Key")],
      last: last.string(),
      batch: (await take(batch, 3)).map(text),
      lasts: (await take(lasts, 3)).map(text),
      none,
    };
  },

  async account({ js, jsm }) {
    const before = await jsm.getAccountInfo();
    const name = await stream(jsm);
    await js.publish(`${name}.a`, new Uint8Array(1000));
    await jsm.consumers.add(name, { durable_name: "D", ack_policy: AckPolicy.None });
    const after = await jsm.getAccountInfo();
    const paused = await jsm.consumers.pause(name, "D", new Date(Date.now() + 3600_000));
    const resumed = await jsm.consumers.resume(name, "D");
    await jsm.streams.purge(name, { keep: 0 });
    return {
      more: [after.streams - before.streams, after.consumers - before.consumers, after.storage > before.storage + 1000],
      paused: [paused.paused, resumed.paused],
      left: (await jsm.streams.info(name)).state.messages,
      names: await take(jsm.consumers.list(name), 1, (info) => info.name),
      deleted: [await jsm.consumers.delete(name, "D"), await jsm.streams.delete(name)],
      gone: await refused(jsm.streams.info(name)),
    };
  },

  async keys({ nc }) {
    const kv = await new Kvm(nc).create(nuid.next(), { history: 5, markerTTL: 1000 });
    const watcher = await kv.watch();
    const put = await kv.put("user.a", "1");
    const made = await kv.create("user.b", "2");
    const exists = await refused(kv.create("user.b", "again"));
    const updated = await kv.update("user.a", "3", put);
    const stale = await refused(kv.update("user.a", "4", put));
    const entry = await kv.get("user.a");
    const first = await kv.get("user.a", { revision: put });
    const keys = await take(await kv.keys(), 2);
    await kv.delete("user.b");
    const history = await take(await kv.history({ key: "user.a" }), 2, (each) => each.string());
    await kv.purge("user.a");
    await kv.create("soon", "5", "1s");
    const told = await take(watcher, 7, (each) => [each.key, each.operation, each.string()]);
    const status = await kv.status();
    return {
      revisions: [put, made, updated],
      refused: [exists !== "accepted", stale],
      values: [entry.string(), first.string()],
      keys: keys.sort(),
      history,
      told,
      gone: (await kv.get("user.b")).operation,
      status: [status.values, status.history],
      destroyed: await kv.destroy(),
    };
  },

  async objects({ nc }) {
    const objm = new Objm(nc);
    const store = await objm.create(nuid.next());
    const other = await objm.create(nuid.next());
    const watcher = await store.watch();
    const data = new Uint8Array(randomBytes(3 * 1024 * 1024));
    const digest = (bytes) => createHash("sha256").update(bytes).digest("base64");
    const put = await store.putBlob({ name: "large" }, data);
    await store.putBlob({ name: "small", description: "said" }, new TextEncoder().encode("hello"));
    const large = await store.getBlob("large");
    const text = async (where, name) => new TextDecoder().decode(await where.getBlob(name));
    const link = await other.link("link", await store.info("small"));
    const linked = await text(other, "link");
    await store.delete("small");
    const told = await take(watcher, 3, (info) => [info.name, info.deleted]);
    await store.putBlob({ name: "small" }, new TextEncoder().encode("other"));
    const sealed = await store.seal();
    return {
      large: [put.size, put.chunks, digest(large) === digest(data)],
      link: [link.name, linked],
      told,
      listed: (await store.list()).map((info) => info.name).sort(),
      sealed: [sealed.sealed, (await refused(store.putBlob({ name: "late" }, data))) !== "accepted"],
      destroyed: [await store.destroy(), await other.destroy()],
    };
  },
};

(async () => {
  const nc = await connect({ servers: process.argv[2] });
  const outcomes = {};
  for (const [name, scenario] of Object.entries(scenarios)) {
    try {
      const jsm = await jetstreamManager(nc, { timeout: 30_000 });
      outcomes[name] = await scenario({ nc, jsm, js: jetstream(nc, { timeout: 30_000 }) });
    } catch (error) {
      outcomes[name] = { error: error.stack };
    }
  }
  console.log(JSON.stringify(outcomes));
  await nc.close();
})();
