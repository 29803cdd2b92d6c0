// The forms of a query (a vector, an image, a text) and of a record, and the view of an answer.

const number = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

const MOST_FIELDS = 60; // beyond it a vector is pasted

function make(tag, properties = {}, ...children) {
  const found = Object.assign(document.createElement(tag), properties);
  found.append(...children);
  return found;
}

/** Return the form for what the store takes: its element, and a function that gives the body. Ids
    of its fields begin with `prefix`: there may be two on the page. */
export function queryForm(status, prefix = "") {
  const kinds = { vectors: vectorForm, images: imageForm, texts: textForm, rows: rowForm };
  return { ...kinds[status.takes](status, prefix), classes: status.classes };
}

/** Return the form of a record: that of a query, what the record carries, and whose it is. */
export function recordForm(status) {
  const { element, body } = queryForm(status, "new-");
  const { kind } = status.target;
  const single = kind === "classes";
  const names = single ? ["Label"] : kind === "labels" ? status.target.labels
    : Array.isArray(status.target.bounds) ? ["Target"] : Object.keys(status.target.bounds);
  const inputs = names.map((name, i) => single ? field("new-label", "", status.classes.map(String))
    : kind === "labels" ? make("input", { id: `new-target-${i}`, type: "checkbox" })
    : field(`new-target-${i}`, "number", null));
  const subject = make("input", { id: "new-subject", spellcheck: false, autocomplete: "off" });
  const carried = () => {
    if (kind === "labels") return { targets: [inputs.map(({ checked }) => Number(checked))] };
    if (inputs.some(({ value }) => value === "")) throw new Error(`Enter what the record carries: ${names.join(", ")}.`);
    return single ? { labels: [status.classes[inputs[0].selectedIndex - 1]] }
      : { targets: [inputs.map(({ value }) => Number(value))] };
  };
  element.append(make("div", { className: "fields" },
    ...names.map((name, i) => make("div", {}, make("label", { htmlFor: inputs[i].id }, String(name)), inputs[i])),
    make("div", {}, make("label", { htmlFor: subject.id }, "Subject"), subject)));
  return {
    element,
    body: () => ({ ...body(), ...carried(), ...(subject.value === "" ? {} : { subjects: [subject.value] }) }),
  };
}

function vectorForm({ numbers, columns }, prefix) {
  if (columns !== null && columns.length <= MOST_FIELDS) return namedVectorForm(columns, prefix);
  const words = numbers === null ? "Numbers" : `${numbers} numbers`;
  const id = `${prefix}vector`;
  const area = make("textarea", { id, spellcheck: false, placeholder: "0.1, 2.9, 0.2, …" });
  area.setAttribute("aria-describedby", `${id}-note`);
  const element = make("div", {}, make("label", { htmlFor: id }, words), area,
    make("p", { id: `${id}-note`, className: "note" }, "Separated by commas, spaces or new lines."));
  return { element, body: () => ({ vectors: [read(area.value, numbers)] }) };
}

function read(text, numbers) {
  const parts = text.replace(/[[\]]/g, " ").split(/[\s,;]+/).filter((part) => part !== "");
  const found = parts.map(Number);
  if (found.length === 0) throw new Error("Enter the numbers of a query.");
  if (!found.every(Number.isFinite)) throw new Error("Enter numbers only.");
  if (numbers !== null && found.length !== numbers)
    throw new Error(`This store takes ${numbers} numbers. You entered ${found.length}.`);
  return found;
}

/** Fields with their names, and what stands in them: null where a field is empty. */
function namedFields(columns, prefix) {
  const fields = columns.map(({ name, kind, values }, i) => [name, field(`${prefix}column-${i}`, kind, values)]);
  const element = make("div", { className: "fields" }, ...fields.map(([name, input]) =>
    make("div", {}, make("label", { htmlFor: input.id }, name), input)));
  const cell = ({ value, type }) => (value.trim() === "" ? null : type === "number" ? Number(value) : value);
  return { element, row: () => fields.map(([name, input]) => [name, cell(input)]) };
}

/** The form of a table: a field for every column, by name; an empty field is a missing value. */
function rowForm({ columns }, prefix) {
  const { element, row } = namedFields(columns, prefix);
  element.append(make("p", { className: "note" }, "Leave a field empty where the value is missing."));
  return { element, body: () => ({ rows: [Object.fromEntries(row())] }) };
}

/** The form of a vector whose numbers have names; none may be missing. */
function namedVectorForm(columns, prefix) {
  const { element, row } = namedFields(columns, prefix);
  return {
    element,
    body: () => {
      const empty = row().filter(([, value]) => value === null).map(([name]) => name);
      if (empty.length) throw new Error(`Enter a number: ${empty.join(", ")}.`);
      return { vectors: [row().map(([, value]) => value)] };
    },
  };
}

function field(id, kind, values) {
  if (values !== null)
    return make("select", { id }, ...["", ...values].map((value) => make("option", { value }, value)));
  const types = { date: "date", moment: "datetime-local", time: "time", number: "number", whole: "number" };
  return make("input", { id, type: types[kind], step: "any" });
}

function textForm(_, prefix) {
  const area = make("textarea", { id: `${prefix}text`, maxLength: 20000 });
  const element = make("div", {}, make("label", { htmlFor: area.id }, "Text"), area);
  return {
    element,
    body: () => {
      if (area.value.trim() === "") throw new Error("Enter a text.");
      return { texts: [area.value] };
    },
  };
}

function imageForm(_, prefix) {
  const file = make("input", { id: `${prefix}image`, type: "file", accept: "image/*" });
  const side = (name) => make("input", { id: prefix + name, type: "number", min: 4, max: 512, value: 28 });
  const [width, height] = [side("width"), side("height")];
  const invert = make("input", { id: `${prefix}invert`, type: "checkbox" });
  const canvas = make("canvas", { width: 28, height: 28 });
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", "What will be sent");
  const preview = make("div", { className: "preview", hidden: true }, canvas,
    make("p", { className: "note" }, "This is what is sent: grey, from 0 (black) to 255 (white)."));
  let picture = null;
  const draw = () => {
    if (picture === null) return;
    [canvas.width, canvas.height] = [Number(width.value), Number(height.value)];
    const pen = canvas.getContext("2d", { willReadFrequently: true });
    pen.drawImage(picture, 0, 0, canvas.width, canvas.height);
    const shown = pen.getImageData(0, 0, canvas.width, canvas.height);
    shown.data.forEach((_, i, data) => { if (i % 4 === 0) shade(data, i, invert.checked); });
    pen.putImageData(shown, 0, 0);
    preview.hidden = false;
  };
  file.addEventListener("change", async () => {
    picture = file.files.length ? await createImageBitmap(file.files[0]).catch(() => null) : null;
    preview.hidden = picture === null;
    draw();
  });
  for (const input of [width, height, invert]) input.addEventListener("change", draw);
  const element = make("div", {}, make("label", { htmlFor: file.id }, "Image"), file,
    make("div", { className: "sizes" },
      make("div", {}, make("label", { htmlFor: width.id }, "Width"), width),
      make("div", {}, make("label", { htmlFor: height.id }, "Height"), height)),
    make("label", { className: "check" }, invert, "Dark on light: invert"), preview);
  return {
    element,
    body: () => {
      if (picture === null) throw new Error("Choose an image.");
      return { images: [pixels(canvas)] };
    },
  };
}

function shade(data, i, inverted) {
  const opaque = data[i + 3] / 255;
  const light = 0.299 * data[i] + 0.587 * data[i + 1] + 0.114 * data[i + 2];
  const grey = Math.round(light * opaque + (inverted ? 255 : 0) * (1 - opaque));
  data[i] = data[i + 1] = data[i + 2] = inverted ? 255 - grey : grey;
  data[i + 3] = 255;
}

function pixels(canvas) {
  const { width, height } = canvas;
  const data = canvas.getContext("2d").getImageData(0, 0, width, height).data;
  return Array.from({ length: height }, (_, y) =>
    Array.from({ length: width }, (_, x) => data[4 * (y * width + x)]));
}

/** Return the view of an answer to one query: label, probability, confidence, cost, noisy votes. */
export function answerView(reply, classes, ms) {
  const chips = [
    reply.charged ? "used 1 answer" : "replayed, free",
    `${number.format(reply.left)} left`,
    `${number.format(ms)} ms`,
  ];
  if (reply.votes === undefined) return targetView(reply, chips);
  const votes = reply.votes === null ? null : reply.votes[0];
  const shares = reply.probabilities?.[0] ?? null;
  if (reply.confidence !== null && reply.confidence[0] !== null) chips.unshift(confidence(reply.confidence[0]));
  if (shares !== null) chips.unshift(`probability ${percent(shares[classes.indexOf(reply.labels[0])])}`);
  const verdict = make("p", { className: "verdict" }, make("strong", {}, String(reply.labels[0])),
    ...chips.map((words) => make("span", { className: "chip" }, words)));
  const note = make("p", { className: "note" }, reply.votes === null
    ? "This store releases only labels, so there are no votes to show."
    : votes === null ? "The private model was sure of this answer, so no record was used and nobody was charged."
    : `Votes of the neighbours, with the noise that protects them${shares === null ? "" : ", and the probability of each class"}. `
      + "Confidence is the lead of the best class over the next, in standard deviations of that noise.");
  return make("div", {}, make("p", { className: "label" }, "Label"), verdict, ...(votes === null ? [] : [bars(votes, shares, reply.labels[0], classes)]), note);
}

function percent(share) {
  return share < 0.001 ? "< 0.1 %" : `${number.format(100 * share)} %`;
}

/** Return the view of numbers with their errors, or of labels with their shares. */
function targetView(reply, chips) {
  const names = reply.targets ?? reply.names;
  const [values, errors] = [(reply.predictions ?? reply.shares)[0], reply.errors[0]];
  const lines = names.map((name, i) => make("p", { className: "verdict" },
    make("strong", {}, `${name}: ${number.format(values[i])}`),
    make("span", { className: "chip" }, `± ${number.format(errors[i])}`),
    ...(reply.labels?.[0].includes(name) ? [make("span", { className: "chip" }, "given")] : [])));
  const note = make("p", { className: "note" }, "What the records near the query say on average; "
    + "± is the standard error of the noise that protects them.");
  return make("div", {}, make("p", { className: "label" }, reply.targets ? "Prediction" : "Shares"),
    ...lines, make("p", {}, ...chips.map((words) => make("span", { className: "chip" }, words))), note);
}

function confidence(lead) {
  const words = lead < 1 ? "a toss-up" : lead < 3 ? "likely" : "clear";
  return `confidence ${number.format(lead)} σ: ${words}`;
}

function bars(votes, shares, best, classes) {
  const low = Math.min(0, ...votes);
  const span = Math.max(0, ...votes) - low || 1;
  const zero = (100 * -low) / span;
  const chance = (i) => (shares === null ? "" : percent(shares[i]));
  const list = make("div", { className: "votes" });
  list.style.setProperty("--zero", `${zero}%`);
  list.setAttribute("role", "img");
  list.setAttribute("aria-label", "Noisy votes: "
    + votes.map((vote, i) => `${classes[i]} ${number.format(vote)} ${chance(i)}`.trim()).join(", "));
  votes.forEach((vote, i) => {
    const style = classes[i] === best ? "best" : "";
    const length = (100 * Math.abs(vote)) / span;
    list.append(make("span", { className: style }, String(classes[i])),
      make("span", { className: "track" }, bar(vote < 0 ? zero - length : zero, length, style)),
      make("span", { className: `number ${style}` }, number.format(vote)),
      make("span", { className: `number ${style}` }, chance(i)));
  });
  return list;
}

function bar(from, length, style) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const rect = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  const placed = { x: `${from}%`, width: `${length}%`, height: "100%", rx: 3, class: style };
  for (const [name, value] of Object.entries(placed)) rect.setAttribute(name, value);
  svg.append(rect);
  return svg;
}
