// Run a scenario with a JavaScript client (npm package "nats"): node session.cjs <url> <scenario>. Print the outcome as JSON.
"use strict";

const { connect, createInbox, headers, ErrorCode, StringCodec } = require("nats");

const text = StringCodec();

async function collect(subscription, number) {
  const received = [];
  for await (const message of subscription) {
    received.push(text.decode(message.data));
    if (received.length === number) break;
  }
  return received;
}

const scenarios = {
  async pubsub(a, b) {
    const inbox = createInbox();
    const all = a.subscribe(`${inbox}.>`);
    const one = a.subscribe(`${inbox}.7`, { max: 1 });
    await a.flush();
    for (let i = 0; i < 1000; i++) b.publish(`${inbox}.${i}`, text.encode(`${i}`));
    await b.flush();
    return { all: await collect(all, 1000), one: await collect(one, 1) };
  },

  async large(a, b) {
    const inbox = createInbox();
    const subscription = a.subscribe(inbox, { max: 4 });
    await a.flush();
    for (let i = 0; i < 4; i++) b.publish(inbox, new Uint8Array(1024 * 1024).fill(i));
    const sums = [];
    for await (const message of subscription) sums.push(message.data.reduce((sum, byte) => sum + byte, 0));
    return sums;
  },

  async request(a, b) {
    const inbox = createInbox();
    b.subscribe(inbox, { callback: (_, message) => message.respond(text.encode(`re: ${text.decode(message.data)}`)) });
    await b.flush();
    const answers = await Promise.all(
      Array.from({ length: 100 }, (_, i) => a.request(inbox, text.encode(`${i}`), { timeout: 30000 })),
    );
    const mux = await a.request(inbox, text.encode("alone"), { timeout: 30000, noMux: true, reply: createInbox() });
    return { answers: answers.map((m) => text.decode(m.data)), mux: text.decode(mux.data) };
  },

  async noresponders(a) {
    try {
      await a.request(createInbox(), text.encode("anyone?"), { timeout: 30000 });
      return "answered";
    } catch (error) {
      return error.code === ErrorCode.NoResponders ? "no responders" : error.code;
    }
  },

  async queue(a, b) {
    const inbox = createInbox();
    const received = [];
    const members = [a, b, a, b].map((connection, member) =>
      connection.subscribe(inbox, { queue: "workers", callback: (_, m) => received.push([member, text.decode(m.data)]) }),
    );
    await a.flush();
    await b.flush();
    for (let i = 0; i < 1000; i++) a.publish(inbox, text.encode(`${i}`));
    await a.flush();
    await b.flush();
    const counts = members.map((_, member) => received.filter(([m]) => m === member).length);
    return { counts, messages: received.map(([, data]) => data).sort((x, y) => x - y) };
  },

  async headers(a, b) {
    const inbox = createInbox();
    const subscription = a.subscribe(inbox, { max: 2 });
    await a.flush();
    const sent = headers();
    sent.append("Key", "one");
    sent.append("Key", "two");
    sent.append("Other", "value: with colon");
    b.publish(inbox, text.encode("payload"), { headers: sent });
    b.publish(inbox, text.encode("bare"));
    const received = [];
    for await (const m of subscription) {
      received.push([text.decode(m.data), m.headers ? [m.headers.values("Key"), m.headers.get("Other")] : null]);
    }
    return received;
  },

  async drain(a, b) {
    const inbox = createInbox();
    const handled = [];
    const done = (async (subscription) => {
      for await (const message of subscription) handled.push(text.decode(message.data));
    })(b.subscribe(inbox));
    await b.flush();
    for (let i = 0; i < 1000; i++) a.publish(inbox, text.encode(`${i}`));
    await a.flush();
    await b.drain();
    await done;
    return { closed: b.isClosed(), handled, after: await scenarios.noresponders(a) };
  },
};

(async () => {
  const [url, scenario] = process.argv.slice(2);
  const [a, b] = await Promise.all([connect({ servers: url }), connect({ servers: url })]);
  console.log(JSON.stringify(await scenarios[scenario](a, b)));
  await Promise.all([a, b].filter((connection) => !connection.isClosed()).map((connection) => connection.close()));
})();
