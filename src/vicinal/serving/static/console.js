// The console: signs in with a key kept only in this module, and shows the replies of the service.
// All external text becomes text nodes; none is parsed as HTML.
import { answerView, queryForm, recordForm } from "/console/form.js";

const REFRESH_MS = 5000;
const byId = (id) => document.getElementById(id);
let key = null;
let timer = null;

function createElement(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

class RequestError extends Error {
  /** `kind`: end of the field "type", which distinguishes errors of one status. */
  constructor(status, detail, kind = "") {
    super(detail);
    this.status = status;
    this.kind = kind;
  }
}

/** Send a request and return its reply; throw a RequestError unless it succeeds. */
async function send(path, options) {
  const headers = { Authorization: `Bearer ${key}`, ...options.headers };
  let reply;
  try {
    reply = await fetch(path, { ...options, headers, credentials: "omit" });
  } catch {
    throw new RequestError(0, "The service is not reachable.");
  }
  if (reply.ok) return reply;
  const { detail = "The service gave no explanation.", type = "" } = await reply.json().catch(() => ({}));
  // References to other requests are for programs.
  throw new RequestError(reply.status, detail.replaceAll(/ (See )?GET \/v1\/[^.]*\./g, ""), type.split("/").pop());
}

/** Return the JSON of a successful reply; an empty object if it has none. */
async function call(path, options = {}) {
  return (await send(path, options)).json().catch(() => ({}));
}

const numberFormat = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const formatDecimal = (value) => (value === 0 || Math.abs(value) >= 1e-3 ? String(value) : value.toExponential());

// ---------------------------------------------------------------- the guarantee

function showGuarantee({ audience, guarantee }) {
  const factor = Math.exp(guarantee.epsilon);
  byId("guarantee-summary").textContent = guarantee.holds
    ? `All answers together reveal little about any single subject. Without the records of one subject, `
      + `every result would be at most ${numberFormat.format(Math.ceil(factor * 10) / 10)} times more or less likely, `
      + `except with probability ${formatDecimal(guarantee.delta)}.`
    : "No guarantee holds for these answers.";
  byId("epsilon").textContent = guarantee.epsilon === null ? "none" : formatDecimal(guarantee.epsilon);
  byId("delta").textContent = formatDecimal(guarantee.delta);
  byId("audience").textContent = audience;
  const terms = [
    ["Compared data sets", guarantee.neighbouring],
    ["Protected", guarantee.protected],
    ["Public, not protected", guarantee.public],
    ["Accounting", guarantee.method],
    ["Assumptions", guarantee.assumptions],
  ];
  byId("terms").replaceChildren(...terms.flatMap(([name, value]) => [
    createElement("dt", {}, name),
    createElement("dd", {}, Array.isArray(value) ? createElement("ul", {}, ...value.map((v) => createElement("li", {}, v))) : value),
  ]));
}

// ---------------------------------------------------------------- used and remaining answers

function planView(name, { planned, used, left, usage }) {
  const bar = createElement("span");
  bar.style.width = `${planned ? Math.min(100, (100 * used) / planned) : 100}%`;
  const meter = createElement("div", { className: "meter" }, bar);
  const summary = `${numberFormat.format(used)} of ${numberFormat.format(planned)} answers used`;
  meter.setAttribute("role", "img");
  meter.setAttribute("aria-label", `${name}: ${summary}`);
  const remaining = createElement("span", { className: "left" }, numberFormat.format(left), createElement("small", {}, " remaining"));
  return createElement("div", { className: "plan" },
    createElement("div", { className: "top" }, createElement("span", { className: "label" }, name), remaining),
    meter, createElement("p", { className: "note" }, summary + usageText(usage)));
}

function usageText(usage) {
  return usage === null ? "" : `. Estimated mean use of subjects’ budgets: ${Math.round(100 * usage)} %`;
}

function showQuota({ mine, audiences }) {
  byId("plans").replaceChildren(...Object.entries(audiences).map(([name, usage]) => planView(name, usage)));
  byId("own-quota").textContent = mine.quota === null
    ? `You (${mine.name}) have used ${numberFormat.format(mine.used)} answers and have no personal quota.`
    : `You (${mine.name}) have used ${numberFormat.format(mine.used)} of ${numberFormat.format(mine.quota)} answers; `
      + `${numberFormat.format(mine.left)} remain.`;
  byId("account").textContent = `${mine.name} · ${mine.role}`;
  for (const id of ["account", "sign-out"]) byId(id).hidden = false;
  return mine.role;
}

// ---------------------------------------------------------------- versions of the data

function showHistory({ history }) {
  const changeNames = { add: "Records added", erase: "Erasure", audience: "Audience opened",
    "loss accepted": "Loss accepted: all budgets spent" };
  const rows = [...history].reverse().map(({ at, what, version }) => createElement("tr", {},
    createElement("td", {}, String(version)), createElement("td", {}, changeNames[what] ?? what),
    createElement("td", {}, createElement("time", { dateTime: at }, new Date(at).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" })))));
  byId("history").replaceChildren(...rows);
  byId("history-card").hidden = false;
}

// ---------------------------------------------------------------- sign-in, refresh, sign-out

async function refresh() {
  const role = showQuota(await call("/v1/quota"));
  if (role === "curator") showHistory(await call("/v1/history"));
  return role;
}

function scheduleRefresh() {
  timer = setTimeout(async () => {
    try {
      await refresh();
    } catch (error) {
      if (error.status === 401) return signOut("The key is no longer valid.");
      announce(error.message);
    }
    if (key !== null) scheduleRefresh();
  }, REFRESH_MS);
}

/** Report a status to screen readers; an unchanged text is not announced again. */
function announce(message) {
  if (byId("status").textContent !== message) byId("status").textContent = message;
}

async function signIn(event) {
  event.preventDefault();
  key = byId("key").value.trim();
  byId("key-error").textContent = "";
  try {
    if (!/^[\x21-\x7e]+$/.test(key)) throw new RequestError(401, "This is not a key.", "key");
    const [status, guarantee] = await Promise.all([call("/v1/status"), call("/v1/guarantee")]);
    showGuarantee(guarantee);
    prepareForms(status, await refresh());
  } catch (error) {
    key = null;
    const reasons = {
      key: "This key is not valid for this store. Ask its operator for a key.",
      role: "The console needs a key of an analyst or curator.",
    };
    byId("key-error").textContent = reasons[error.kind] ?? error.message;
    byId("key").focus();
    return;
  }
  byId("key").value = "";
  byId("sign-in").hidden = true;
  byId("console").hidden = false;
  byId("main").focus();
  announce("Signed in.");
  scheduleRefresh();
}

function signOut(message = "") {
  key = null;
  clearTimeout(timer);
  for (const id of ["console", "account", "sign-out", "history-card", "records"]) byId(id).hidden = true;
  for (const id of ["answer", "history", "plans", "terms", "field", "record"]) byId(id).replaceChildren();
  for (const id of ["file-result", "file-error", "add-result", "erase-result"]) byId(id).textContent = "";
  URL.revokeObjectURL(downloadUrl);
  for (const id of ["file", "erase"]) byId(id).reset();
  byId("sign-in").hidden = false;
  byId("key-error").textContent = message;
  byId("key").focus();
}

// ---------------------------------------------------------------- queries, new records, erasure

let queryFields = null;
let recordFields = null;
let downloadUrl = "";
// The last addition without a definite reply, with its Idempotency-Key.
let pendingAddition = { body: "", key: "" };

function prepareForms(status, role) {
  queryFields = queryForm(status);
  byId("field").replaceChildren(queryFields.element);
  byId("answer").replaceChildren();
  byId("file").hidden = status.takes === "images";
  byId("records").hidden = role !== "curator";
  if (role !== "curator") return;
  recordFields = recordForm(status);
  byId("record").replaceChildren(recordFields.element);
}

/** Run `action` when a form is submitted, one at a time; show its error next to the form. */
function onSubmit(name, button, action) {
  byId(name).addEventListener("submit", async (event) => {
    event.preventDefault();
    byId(`${name}-error`).textContent = "";
    byId(button).disabled = true;
    try {
      await action();
      await refresh();
    } catch (error) {
      if (error.status === 401) signOut("The key is no longer valid.");
      else byId(`${name}-error`).textContent = error.message;
    } finally {
      byId(button).disabled = false;
    }
  });
}

function post(path, body, idempotencyKey) {
  return call(path, { method: "POST", body, headers: { "Content-Type": "application/json", "Idempotency-Key": idempotencyKey } });
}

const createKey = () => crypto.getRandomValues(new Uint32Array(4)).join("-");

async function sendQuery() {
  const startTime = performance.now();
  const reply = await post("/v1/predict", JSON.stringify(queryFields.body()), createKey());
  byId("answer").replaceChildren(answerView(reply, queryFields.classes, performance.now() - startTime));
  byId("answer").append(...(reply.notes ?? []).map((note) => createElement("p", {}, `Note: ${note}`)));
}

// The last upload without a definite reply, with its Idempotency-Key.
let pendingUpload = { query: "", file: null, key: "" };

async function answerFile() {
  byId("file-result").replaceChildren();
  const [file] = byId("csv").files;
  if (file === undefined) throw new Error("Choose a CSV file.");
  const fields = { id: byId("id-column").value, coverage: byId("coverage").value.trim() };
  const query = new URLSearchParams(Object.entries(fields).filter(([, value]) => value !== "")).toString();
  // Repeating the same upload after a failure reuses its key, so the service charges it once.
  if (pendingUpload.file !== file || pendingUpload.query !== query) pendingUpload = { query, file, key: createKey() };
  const reply = await send(`/v1/predict-csv${query && "?"}${query}`, { method: "POST", body: file,
    headers: { "Content-Type": "text/csv", "Idempotency-Key": pendingUpload.key } });
  const answers = await reply.blob();
  pendingUpload = { query: "", file: null, key: "" };
  URL.revokeObjectURL(downloadUrl);
  downloadUrl = URL.createObjectURL(answers);
  const link = createElement("a", { href: downloadUrl, download: "answers.csv" }, "Download answers.csv");
  byId("file-result").replaceChildren(link,
    ` Used ${reply.headers.get("Vicinal-Charged")} answers; ${reply.headers.get("Vicinal-Left")} remain. ${decodeURIComponent(reply.headers.get("Vicinal-Promise") ?? "")} ${decodeURIComponent(reply.headers.get("Vicinal-Notes") ?? "")}`);
  link.click();
}

async function addRecord() {
  byId("add-result").textContent = "";
  const body = JSON.stringify({ ...recordFields.body(), ids_differ: byId("ids-differ").checked });
  // Repeating the same record after a failure reuses its key, so the service adds it once.
  if (pendingAddition.body !== body) pendingAddition = { body, key: createKey() };
  const { version } = await post("/v1/records", body, pendingAddition.key).catch((error) => {
    if (error.status >= 400 && error.status < 500) pendingAddition = { body: "", key: "" };
    throw error;
  });
  pendingAddition = { body: "", key: "" };
  byId("ids-differ").checked = false;
  byId("add-result").textContent = `Record added. The data now have version ${version}.`;
}

async function eraseSubject() {
  byId("erase-result").textContent = "";
  const id = byId("erased-subject").value;
  if (id === "") throw new Error("Enter the id of a subject.");
  if (!byId("confirm-erasure").checked) throw new Error("Tick the box to confirm that every record of this subject is erased permanently.");
  const showsOutcome = byId("outcome").checked;
  const { version, outcome } = await call(`/v1/subjects/${encodeURIComponent(id)}${showsOutcome ? "?outcome=true" : ""}`, { method: "DELETE" });
  byId("erase").reset();
  byId("erase-result").textContent = (!showsOutcome ? "The store now holds no record of the subject."
    : outcome.enrolled ? "The subject was enrolled and is now erased." : outcome.erased ? "The subject was erased before."
    : outcome.similar ? "The subject was never enrolled, but another spelling of this id is or was: check the id."
    : "The subject was never enrolled.") + ` The data now have version ${version}.`;
}

byId("key-form").addEventListener("submit", signIn);
onSubmit("query", "send", sendQuery);
onSubmit("file", "send-file", answerFile);
onSubmit("add", "send-record", addRecord);
onSubmit("erase", "send-erasure", eraseSubject);
byId("sign-out").addEventListener("click", () => signOut());
byId("key").focus();
