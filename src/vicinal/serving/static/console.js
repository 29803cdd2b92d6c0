// The console: signs in with a key that lives in this module only, and shows what the service tells.
// Everything from outside becomes text nodes; nothing is ever parsed as HTML.
import { answerView, queryForm, recordForm } from "/console/form.js";

const EVERY_MS = 5000;
const $ = (id) => document.getElementById(id);
let key = null;
let timer = null;

function make(tag, properties = {}, ...children) {
  const found = Object.assign(document.createElement(tag), properties);
  found.append(...children);
  return found;
}

class Failed extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

async function call(path, options = {}) {
  const headers = { Authorization: `Bearer ${key}`, ...options.headers };
  let reply;
  try {
    reply = await fetch(path, { ...options, headers, credentials: "omit" });
  } catch {
    throw new Failed(0, "The service cannot be reached.");
  }
  const body = await reply.json().catch(() => ({}));
  if (!reply.ok) throw new Failed(reply.status, body.detail ?? "The service gave no reason.");
  return body;
}

const number = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const plain = (value) => (value === 0 || Math.abs(value) >= 1e-3 ? String(value) : value.toExponential());

// ---------------------------------------------------------------- the guarantee

function showGuarantee({ audience, guarantee }) {
  const factor = Math.exp(guarantee.epsilon);
  $("promise-lead").textContent = guarantee.holds
    ? `Somebody who sees every answer learns little about any one person. Taking all of a person’s records `
      + `out makes no conclusion more than ${number.format(Math.ceil(factor * 10) / 10)} times as likely `
      + `or unlikely, except with probability ${plain(guarantee.delta)}.`
    : "No guarantee holds for these answers.";
  $("epsilon").textContent = plain(guarantee.epsilon);
  $("delta").textContent = plain(guarantee.delta);
  $("audience").textContent = audience;
  const terms = [
    ["Compared", guarantee.neighbouring],
    ["Protected", guarantee.protected],
    ["Public, and not protected", guarantee.public],
    ["Accounting", guarantee.method],
    ["Assumed", guarantee.assumptions],
  ];
  $("terms").replaceChildren(...terms.flatMap(([name, value]) => [
    make("dt", {}, name),
    make("dd", {}, Array.isArray(value) ? make("ul", {}, ...value.map((v) => make("li", {}, v))) : value),
  ]));
}

// ---------------------------------------------------------------- what is used and left

function plan(name, { planned, used, left, wear }) {
  const bar = make("span");
  bar.style.width = `${planned ? Math.min(100, (100 * used) / planned) : 100}%`;
  const meter = make("div", { className: "meter" }, bar);
  const words = `${number.format(used)} of ${number.format(planned)} answers used`;
  meter.setAttribute("role", "img");
  meter.setAttribute("aria-label", `${name}: ${words}`);
  const big = make("span", { className: "left" }, number.format(left), make("small", {}, " left"));
  return make("div", { className: "plan" },
    make("div", { className: "top" }, make("span", { className: "label" }, name), big),
    meter, make("p", { className: "note" }, words + worn(wear)));
}

function worn(wear) {
  return wear === null ? "" : `. Subjects have used about ${Math.round(100 * wear)} % of their budgets (estimate)`;
}

function showQuota({ mine, audiences }) {
  $("plans").replaceChildren(...Object.entries(audiences).map(([name, found]) => plan(name, found)));
  $("mine").textContent = mine.quota === null
    ? `You (${mine.name}) have used ${number.format(mine.used)}, and have no limit of your own.`
    : `You (${mine.name}) have used ${number.format(mine.used)} of ${number.format(mine.quota)}; `
      + `${number.format(mine.left)} left.`;
  $("who").textContent = `${mine.name} · ${mine.role}`;
  for (const id of ["who", "leave"]) $(id).hidden = false;
  return mine.role;
}

// ---------------------------------------------------------------- versions of the data

function showHistory({ history }) {
  const words = { add: "Records added", erase: "Erasure", audience: "Audience opened",
    "loss accepted": "Loss accepted: all budgets spent" };
  const rows = [...history].reverse().map(({ at, what, version }) => make("tr", {},
    make("td", {}, String(version)), make("td", {}, words[what] ?? what),
    make("td", {}, make("time", { dateTime: at }, new Date(at).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" })))));
  $("history").replaceChildren(...rows);
  $("history-card").hidden = false;
}

// ---------------------------------------------------------------- coming, staying, leaving

async function refresh() {
  const role = showQuota(await call("/v1/quota"));
  if (role === "curator") showHistory(await call("/v1/history"));
  return role;
}

function again() {
  timer = setTimeout(async () => {
    try {
      await refresh();
    } catch (error) {
      if (error.status === 401) return leave("The key is no longer valid.");
      say(error.message);
    }
    if (key !== null) again();
  }, EVERY_MS);
}

function say(words) {
  if ($("state").textContent !== words) $("state").textContent = words;
}

async function enter(event) {
  event.preventDefault();
  key = $("key").value.trim();
  $("key-error").textContent = "";
  try {
    if (!/^[\x21-\x7e]+$/.test(key)) throw new Failed(401, "That is not a key.");
    const [status, guarantee] = await Promise.all([call("/v1/status"), call("/v1/guarantee")]);
    showGuarantee(guarantee);
    prepare(status, await refresh());
  } catch (error) {
    key = null;
    $("key-error").textContent = error.status === 401
      ? "This key is not valid here. Ask the store’s operator for one." : error.message;
    $("key").focus();
    return;
  }
  $("key").value = "";
  $("door").hidden = true;
  $("room").hidden = false;
  $("main").focus();
  say("Signed in.");
  again();
}

function leave(words = "") {
  key = null;
  clearTimeout(timer);
  for (const id of ["room", "who", "leave", "history-card", "records"]) $(id).hidden = true;
  for (const id of ["answer", "history", "plans", "terms", "field", "record"]) $(id).replaceChildren();
  for (const id of ["add-done", "erase-done"]) $(id).textContent = "";
  $("erase").reset();
  $("door").hidden = false;
  $("key-error").textContent = words;
  $("key").focus();
}

// ---------------------------------------------------------------- asking, adding, erasing

let form = null;
let record = null;
let unsure = { body: "", name: "" }; // records of which nobody knows whether they came

function prepare(status, role) {
  form = queryForm(status);
  $("field").replaceChildren(form.element);
  $("answer").replaceChildren();
  $("records").hidden = role !== "curator";
  if (role !== "curator") return;
  record = recordForm(status);
  $("record").replaceChildren(record.element);
}

/** Do what a form is for, once at a time, and show what comes of it, or beside the form why not. */
function onSubmit(name, button, work) {
  $(name).addEventListener("submit", async (event) => {
    event.preventDefault();
    $(`${name}-error`).textContent = "";
    $(button).disabled = true;
    try {
      await work();
      await refresh();
    } catch (error) {
      if (error.status === 401) leave("The key is no longer valid.");
      else $(`${name}-error`).textContent = error.message;
    } finally {
      $(button).disabled = false;
    }
  });
}

function post(path, body, name) {
  return call(path, { method: "POST", body, headers: { "Content-Type": "application/json", "Idempotency-Key": name } });
}

const unique = () => crypto.getRandomValues(new Uint32Array(4)).join("-");

async function ask() {
  const begin = performance.now();
  const reply = await post("/v1/predict", JSON.stringify(form.body()), unique());
  $("answer").replaceChildren(answerView(reply, form.classes, performance.now() - begin));
}

async function add() {
  $("add-done").textContent = "";
  const body = JSON.stringify({ ...record.body(), ids_differ: $("differ").checked });
  // The same again after a failure is the same addition, which the service makes once.
  if (unsure.body !== body) unsure = { body, name: unique() };
  const { version } = await post("/v1/records", body, unsure.name).catch((error) => {
    if (error.status >= 400 && error.status < 500) unsure = { body: "", name: "" };
    throw error;
  });
  unsure = { body: "", name: "" };
  $("differ").checked = false;
  $("add-done").textContent = `Added. The data are now at version ${version}.`;
}

async function erase() {
  $("erase-done").textContent = "";
  const id = $("gone").value;
  if (id === "") throw new Error("Enter the id of a subject.");
  if (!$("sure").checked) throw new Error("Tick the box that says that every record of this subject is erased for good.");
  const asked = $("outcome").checked;
  const { version, outcome } = await call(`/v1/subjects/${encodeURIComponent(id)}${asked ? "?outcome=true" : ""}`, { method: "DELETE" });
  $("erase").reset();
  $("erase-done").textContent = (!asked ? "The store holds no record of the subject now, whether it did before or not."
    : outcome.enrolled ? "The subject was in the store, and is now erased." : outcome.erased ? "The subject had been erased before."
    : "The subject was never in the store.") + ` The data are now at version ${version}.`;
}

$("enter").addEventListener("submit", enter);
onSubmit("ask", "send", ask);
onSubmit("add", "send-record", add);
onSubmit("erase", "send-erasure", erase);
$("leave").addEventListener("click", () => leave());
$("key").focus();
