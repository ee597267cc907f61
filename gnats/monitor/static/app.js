// The dashboard: polls the JSON pages, and draws what has changed since the poll before.
"use strict";

const INTERVAL = 2000; // ms between two polls
const KEPT = 150; // points of a chart: five minutes
const SHOWN = 10; // rows of a table
const FETCHED = 50; // connections among which the busiest are looked for
const MOST_LINKS = 32; // rows of the table of links
const MOST_SUBS = 500; // a connection with more subscriptions is not asked for them
const SUBS_EVERY = 3; // polls

const element = (id) => document.getElementById(id);
const put = (id, text) => {
  const node = element(id);
  if (node.textContent !== text) node.textContent = text;
};

const decimals = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const whole = new Intl.NumberFormat("en");

function scaled(value, base, units) {
  let unit = 0;
  while (value >= base * 0.9995 && unit < units.length - 1) {
    value /= base;
    unit += 1;
  }
  return decimals.format(value) + (units[unit] ? ` ${units[unit]}` : "");
}
const count = (value) => scaled(value, 1000, ["", "k", "M", "G", "T"]);
const bytes = (value) => scaled(value, 1024, ["B", "KiB", "MiB", "GiB", "TiB"]);

// -- rates: how fast counters grow, by key -----------------------------------------------------------------

class Rates {
  constructor() {
    this.before = new Map();
  }

  // The growth a second of each of `counters` ({name: value}) since the last turn; zero for what is new.
  of(key, time, counters) {
    const last = this.before.get(key);
    const rates = {};
    for (const [name, value] of Object.entries(counters)) {
      const grown = last && time > last.time ? ((value - last.counters[name]) * 1000) / (time - last.time) : 0;
      rates[name] = Math.max(0, grown);
    }
    this.seen ??= new Map();
    this.seen.set(key, { time, counters });
    return rates;
  }

  // Forget what was not asked for in this turn.
  turn() {
    this.before = this.seen ?? new Map();
    this.seen = null;
  }
}

// -- charts -------------------------------------------------------------------------------------------------

class Chart {
  constructor(id, most, show, what) {
    this.svg = element(id);
    this.most = most;
    this.show = show;
    this.what = what;
    this.points = [];
    for (const y of [30, 60, 90]) this.add("line", { x1: 0, x2: 600, y1: y, y2: y });
    this.lines = { in: this.add("polyline", { class: "in" }), out: this.add("polyline", { class: "out" }) };
  }

  add(tag, attributes) {
    const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    this.svg.append(node);
    return node;
  }

  push(point) {
    this.points.push(point);
    if (this.points.length > KEPT) this.points.shift();
    const top = Math.max(1, ...this.points.map((p) => Math.max(p.in, p.out)));
    const step = 600 / (KEPT - 1);
    const start = 600 - (this.points.length - 1) * step;
    for (const name of ["in", "out"]) {
      const line = this.points.map((p, i) => `${(start + i * step).toFixed(1)},${(118 - (p[name] / top) * 114).toFixed(1)}`);
      this.lines[name].setAttribute("points", line.join(" "));
    }
    put(this.most, `max ${this.show(top)}/s`);
    const now = `now ${this.show(point.in)} in and ${this.show(point.out)} out`;
    this.svg.setAttribute("aria-label", `${this.what} a second: ${now}, at most ${this.show(top)} in the last five minutes`);
  }
}

// -- tables -------------------------------------------------------------------------------------------------

// Rows are lists of cells: a string, or [string, class].
function fill(id, rows, none) {
  const body = element(id);
  if (rows.length === 0) rows = [[[none, "none"]]];
  const made = rows.map((cells) => {
    const row = document.createElement("tr");
    for (const cell of cells) {
      const [text, kind] = Array.isArray(cell) ? cell : [cell, ""];
      const td = document.createElement("td");
      td.textContent = text;
      td.title = text;
      if (kind) td.className = kind;
      row.append(td);
    }
    return row;
  });
  if (rows.length === 1 && rows[0].length === 1) made[0].firstChild.colSpan = element(id).closest("table").tHead.rows[0].cells.length;
  body.replaceChildren(...made);
}

const n = (text) => [text, "n"];
const place = (conn) => `${conn.cid} ${conn.ip ?? ""}:${conn.port ?? ""}`;
const client = (conn) => [conn.name, conn.lang, conn.version].filter(Boolean).join(" ");

// -- polling ------------------------------------------------------------------------------------------------

const serverRates = new Rates();
const accountRates = new Rates();
const connectionRates = new Rates();
const linkRates = new Rates();
const subRates = new Rates();
const msgsChart = new Chart("msgs_chart", "msgs_most", count, "Messages");
const bytesChart = new Chart("bytes_chart", "bytes_most", bytes, "Bytes");
const TRAFFIC = ["in_msgs", "out_msgs", "in_bytes", "out_bytes"];
const pick = (from, names) => Object.fromEntries(names.map((name) => [name, from[name]]));

let serverId = "";
let polls = 0;
let first = true;

async function get(path) {
  const response = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(10000) });
  if (!response.ok && !path.startsWith("healthz")) throw new Error(`${path}: ${response.status}`);
  return response.json();
}

function state(kind, text) {
  element("state").dataset.state = kind;
  put("state", text);
}

function showServer(varz) {
  const time = Date.parse(varz.now);
  const rates = serverRates.of("", time, pick(varz, TRAFFIC));
  serverRates.turn();
  document.title = `${varz.server_name} - gnats`;
  put("name", varz.server_name);
  put("about", `gnats ${varz.gnats ?? ""} as nats-server ${varz.version}, port ${varz.port}, up ${varz.uptime}`);
  for (const name of TRAFFIC) {
    const show = name.endsWith("bytes") ? bytes : count;
    put(name, first ? "\u2013" : `${show(rates[name])}/s`);
    put(`${name}_total`, `${show(varz[name])} so far`);
  }
  put("connections", whole.format(varz.connections));
  put("total_connections", `${count(varz.total_connections)} so far, ${count(varz.max_connections)} allowed`);
  put("subscriptions", count(varz.subscriptions));
  put("fanout", rates.in_msgs > 0 ? `fan-out ${decimals.format(rates.out_msgs / rates.in_msgs)}` : "");
  put("slow_consumers", whole.format(varz.slow_consumers));
  element("slow_tile").classList.toggle("bad", varz.slow_consumers > 0);
  put("stalled_clients", `${count(varz.stalled_clients)} stalls, ${count(varz.stale_connections)} stale`);
  put("cpu", `${decimals.format(varz.cpu)} %`);
  put("mem", `${bytes(varz.mem)}, ${varz.cores} cores`);
  if (!first) {
    msgsChart.push({ in: rates.in_msgs, out: rates.out_msgs });
    bytesChart.push({ in: rates.in_bytes, out: rates.out_bytes });
  }
  first = false;
}

function showAccounts(page) {
  const time = Date.parse(page.now);
  const rows = page.account_statz.map((account) => {
    const counters = { in: account.received.msgs, out: account.sent.msgs };
    return { account, rates: accountRates.of(account.acc, time, counters) };
  });
  accountRates.turn();
  rows.sort((a, b) => b.rates.in + b.rates.out - a.rates.in - a.rates.out || b.account.conns - a.account.conns);
  const cells = rows.slice(0, SHOWN).map(({ account, rates }) => [
    account.name, n(whole.format(account.conns)), n(count(account.num_subscriptions)),
    n(count(rates.in)), n(count(rates.out)),
    [whole.format(account.slow_consumers), account.slow_consumers ? "n bad" : "n"],
  ]);
  fill("account_rows", cells, "none");
}

function showConnections(pages) {
  const time = Date.parse(pages[0].now);
  const found = new Map(pages.flatMap((page) => page.connections).map((conn) => [conn.cid, conn]));
  const rows = [...found.values()].map((conn) => {
    return { conn, rates: connectionRates.of(conn.cid, time, pick(conn, TRAFFIC)) };
  });
  connectionRates.turn();
  const msgs = ({ rates }) => rates.in_msgs + rates.out_msgs;
  rows.sort((a, b) => msgs(b) - msgs(a) || b.conn.out_msgs - a.conn.out_msgs);
  const busiest = rows.slice(0, SHOWN);
  const cells = busiest.map(({ conn, rates }) => [
    place(conn), conn.account ?? "$G", client(conn), n(count(rates.in_msgs)), n(count(rates.out_msgs)),
    n(bytes(rates.in_bytes + rates.out_bytes)), [bytes(conn.pending_bytes), conn.pending_bytes > 1 << 20 ? "n bad" : "n"],
    n(count(conn.subscriptions)), n(conn.rtt ?? ""),
  ]);
  fill("connection_rows", cells, "none");
  return busiest.map(({ conn }) => conn);
}

const KINDS = { route: "route", leafnode: "leaf node", gateway: "gateway" };

const kindOf = (link) =>
  link.cluster ? `${KINDS[link.kind]} ${link.did_solicit ? "to" : "from"} ${link.cluster}` : KINDS[link.kind];

// Show problems, then the links; pools have many, so the busiest first.
function showLinks(page) {
  const time = Date.parse(page.now);
  const slow = new Set(page.problems.filter((each) => each.problem === "slow").map((each) => `${each.kind} ${each.remote}`));
  const problems = page.problems.filter((each) => each.problem !== "slow").map((each) => [
    [`${each.remote ?? ""} (${each.problem} ${KINDS[each.kind]})`.trim(), "bad"], each.address ?? "", each.account,
    n(""), n(""), n(""), n(""), n(""), "", [each.error, "bad"],
  ]);
  const rows = page.links.map((link) => ({ link, rates: linkRates.of(link.id, time, pick(link, TRAFFIC)) }));
  linkRates.turn();
  const msgs = ({ rates }) => rates.in_msgs + rates.out_msgs;
  rows.sort((a, b) => msgs(b) - msgs(a) || a.link.remote.localeCompare(b.link.remote) || a.link.id - b.link.id);
  const cells = rows.slice(0, MOST_LINKS).map(({ link, rates }) => {
    const bad = slow.has(`${link.kind} ${link.remote}`);
    return [
      [`${link.remote} (${kindOf(link)}${bad ? ", slow" : ""})`, bad ? "bad" : ""], link.address, link.account,
      n(count(rates.in_msgs)), n(count(rates.out_msgs)), [bytes(link.pending_size), bad ? "n bad" : "n"],
      n(count(link.subscriptions)), n(link.rtt), link.compression, link.last_error,
    ];
  });
  fill("link_rows", [...problems, ...cells], "none");
}

// Show the members of the meta group; a follower knows the standing of the leader alone.
function showMeta(varz) {
  const meta = varz.jetstream?.meta;
  element("meta").hidden = !meta;
  if (!meta) return;
  put("meta_title", `JetStream cluster ${meta.name}: ${meta.cluster_size} servers, ${meta.quorum_needed} needed`);
  const leads = meta.leader === varz.server_name;
  const others = meta.replicas ?? [];
  const cells = others.map((each) => {
    const leader = each.name === meta.leader;
    const known = leads || leader;
    const bad = each.offline || (known && !each.current);
    const role = [leader ? "leader" : "follower", each.offline ? "offline" : known && !each.current ? "behind" : ""];
    return [
      each.name, [role.filter(Boolean).join(", "), bad ? "bad" : ""], n(leads ? count(each.lag ?? 0) : ""),
      n(each.active ? `${decimals.format(each.active / 1e9)} s ago` : ""), each.peer,
    ];
  });
  if (!meta.leader) cells.unshift([["no leader is known", "bad"], "", n(""), n(""), ""]);
  if (!others.some((each) => each.name === varz.server_name)) {
    cells.push([varz.server_name, leads ? "leader, this server" : "follower, this server", n(""), n(""), leads ? meta.peer : ""]);
  }
  cells.sort((a, b) => String(a[0]).localeCompare(String(b[0])));
  fill("meta_rows", cells, "none");
}

async function showSubscriptions(conns) {
  const asked = conns.filter((conn) => conn.subscriptions > 0 && conn.subscriptions <= MOST_SUBS);
  const pages = await Promise.all(asked.map((conn) => get(`connz?cid=${conn.cid}&subs=detail`)));
  const rows = pages.flatMap((page) => {
    const time = Date.parse(page.now);
    return page.connections.flatMap((conn) => (conn.subscriptions_list_detail ?? []).map((sub) => {
      return { sub, conn, rates: subRates.of(`${sub.cid} ${sub.sid}`, time, { msgs: sub.msgs }) };
    }));
  });
  subRates.turn();
  rows.sort((a, b) => b.rates.msgs - a.rates.msgs || b.sub.msgs - a.sub.msgs);
  const cells = rows.slice(0, SHOWN).map(({ sub, conn, rates }) => [
    sub.subject, sub.qgroup ?? "", place(conn), n(count(rates.msgs)), n(count(sub.msgs)),
  ]);
  fill("sub_rows", cells, "none among the busiest connections");
}

function showClosed(page) {
  const cells = page.connections.map((conn) => [
    place(conn), client(conn), [conn.reason, /Slow|Stale|Violation|Failure|Error/.test(conn.reason) ? "bad" : ""],
    new Date(conn.stop).toLocaleTimeString(), n(count(conn.in_msgs)), n(count(conn.out_msgs)),
  ]);
  fill("closed_rows", cells, "none");
}

async function poll() {
  const [varz, health, links, accounts, receivers, senders, closed] = await Promise.all([
    get("varz"),
    get("healthz"),
    get("linkz"),
    get("accstatz?unused=1"),
    get(`connz?sort=msgs_to&limit=${FETCHED}&auth=1`),
    get(`connz?sort=msgs_from&limit=${FETCHED}&auth=1`),
    get(`connz?state=closed&sort=stop&limit=${SHOWN}`),
  ]);
  if (serverId && serverId !== varz.server_id) {
    location.reload(); // another server: nothing of what is known holds
    return;
  }
  serverId = varz.server_id;
  showServer(varz);
  showAccounts(accounts);
  showLinks(links);
  showMeta(varz);
  const busiest = showConnections([receivers, senders]);
  showClosed(closed);
  if (polls % SUBS_EVERY === 0) await showSubscriptions(busiest);
  polls += 1;
  const troubled = links.problems.length;
  if (health.status !== "ok") state("bad", health.error ?? health.status);
  else if (troubled > 0) state("bad", troubled === 1 ? "a link has a problem" : `${troubled} links have problems`);
  else state("ok", "healthy");
}

const pause = element("pause");
let timer = 0;

async function run() {
  timer = 0;
  try {
    await poll();
  } catch (error) {
    state("bad", error instanceof TypeError ? "no answer" : String(error.message));
  }
  next();
}

function next() {
  const wanted = pause.getAttribute("aria-pressed") === "false" && document.visibilityState === "visible";
  if (wanted && !timer) timer = setTimeout(run, INTERVAL);
}

pause.addEventListener("click", () => {
  const paused = pause.getAttribute("aria-pressed") === "false";
  pause.setAttribute("aria-pressed", String(paused));
  if (paused) {
    clearTimeout(timer);
    timer = 0;
    state("wait", "paused");
  } else {
    next();
  }
});
document.addEventListener("visibilitychange", next);
run();
