// Input forms of queries (vector, image, text, table row) and records, and the view of an answer.

const numberFormat = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

const MAX_FIELDS = 60; // longer vectors are pasted as text

function createElement(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

/** Return the form for the store's input: its element, a function `body`, and the class names.
    `prefix` makes the ids of the fields unique on the page. */
export function queryForm(status, prefix = "") {
  const builders = { vectors: vectorForm, images: imageForm, texts: textForm, rows: rowForm };
  return { ...builders[status.takes](status, prefix), classes: status.classes };
}

/** Return the form of a record: the input of a query, a label or targets, and a subject id. */
export function recordForm(status) {
  const { element, body } = queryForm(status, "new-");
  const { kind } = status.target;
  const hasClasses = kind === "classes";
  const names = hasClasses ? ["Label"] : kind === "labels" ? status.target.labels
    : Array.isArray(status.target.bounds) ? ["Target"] : Object.keys(status.target.bounds);
  const inputs = names.map((name, i) => hasClasses ? createField("new-label", "", status.classes.map(String))
    : kind === "labels" ? createElement("input", { id: `new-target-${i}`, type: "checkbox" })
    : createField(`new-target-${i}`, "number", null));
  const subject = createElement("input", { id: "new-subject", spellcheck: false, autocomplete: "off" });
  const targets = () => {
    if (kind === "labels") return { targets: [inputs.map(({ checked }) => Number(checked))] };
    if (inputs.some(({ value }) => value === "")) throw new Error(`Enter the target of the record: ${names.join(", ")}.`);
    return hasClasses ? { labels: [status.classes[inputs[0].selectedIndex - 1]] }
      : { targets: [inputs.map(({ value }) => Number(value))] };
  };
  element.append(createElement("div", { className: "fields" },
    ...names.map((name, i) => createElement("div", {}, createElement("label", { htmlFor: inputs[i].id }, String(name)), inputs[i])),
    createElement("div", {}, createElement("label", { htmlFor: subject.id }, "Subject"), subject)));
  return {
    element,
    body: () => ({ ...body(), ...targets(), ...(subject.value === "" ? {} : { subjects: [subject.value] }) }),
  };
}

function vectorForm({ numbers, columns }, prefix) {
  if (columns !== null && columns.length <= MAX_FIELDS) return namedVectorForm(columns, prefix);
  const label = numbers === null ? "Numbers" : `${numbers} numbers`;
  const id = `${prefix}vector`;
  const area = createElement("textarea", { id, spellcheck: false, placeholder: "0.1, 2.9, 0.2, …" });
  area.setAttribute("aria-describedby", `${id}-note`);
  const element = createElement("div", {}, createElement("label", { htmlFor: id }, label), area,
    createElement("p", { id: `${id}-note`, className: "note" }, "Separate the numbers by commas, spaces or new lines."));
  return { element, body: () => ({ vectors: [parseNumbers(area.value, numbers)] }) };
}

function parseNumbers(text, numbers) {
  const words = text.replace(/[[\]]/g, " ").split(/[\s,;]+/).filter((word) => word !== "");
  const vector = words.map(Number);
  if (vector.length === 0) throw new Error("Enter the numbers of a query.");
  if (!vector.every(Number.isFinite)) throw new Error("Enter numbers only.");
  if (numbers !== null && vector.length !== numbers)
    throw new Error(`This store requires ${numbers} numbers. You entered ${vector.length}.`);
  return vector;
}

/** Return labelled fields and a function that reads them as [name, value], null if empty. */
function createFields(columns, prefix) {
  const fields = columns.map(({ name, kind, values }, i) => [name, createField(`${prefix}column-${i}`, kind, values)]);
  const element = createElement("div", { className: "fields" }, ...fields.map(([name, input]) =>
    createElement("div", {}, createElement("label", { htmlFor: input.id }, name), input)));
  const readCell = ({ value, type }) => (value.trim() === "" ? null : type === "number" ? Number(value) : value);
  return { element, row: () => fields.map(([name, input]) => [name, readCell(input)]) };
}

/** Return the form of a table row: one field per column; an empty field is a missing value. */
function rowForm({ columns }, prefix) {
  const { element, row } = createFields(columns, prefix);
  element.append(createElement("p", { className: "note" }, "Leave a field empty where the value is missing."));
  return { element, body: () => ({ rows: [Object.fromEntries(row())] }) };
}

/** Return the form of a vector with column names; every field is required. */
function namedVectorForm(columns, prefix) {
  const { element, row } = createFields(columns, prefix);
  return {
    element,
    body: () => {
      const empty = row().filter(([, value]) => value === null).map(([name]) => name);
      if (empty.length) throw new Error(`Enter a number: ${empty.join(", ")}.`);
      return { vectors: [row().map(([, value]) => value)] };
    },
  };
}

function createField(id, kind, values) {
  if (values !== null)
    return createElement("select", { id }, ...["", ...values].map((value) => createElement("option", { value }, value)));
  const types = { date: "date", moment: "datetime-local", time: "time", number: "number", whole: "number" };
  return createElement("input", { id, type: types[kind], step: "any" });
}

function textForm(_, prefix) {
  const area = createElement("textarea", { id: `${prefix}text`, maxLength: 20000 });
  const element = createElement("div", {}, createElement("label", { htmlFor: area.id }, "Text"), area);
  return {
    element,
    body: () => {
      if (area.value.trim() === "") throw new Error("Enter a text.");
      return { texts: [area.value] };
    },
  };
}

function imageForm(_, prefix) {
  const file = createElement("input", { id: `${prefix}image`, type: "file", accept: "image/*" });
  const sizeField = (name) => createElement("input", { id: prefix + name, type: "number", min: 4, max: 512, value: 28 });
  const [width, height] = [sizeField("width"), sizeField("height")];
  const invert = createElement("input", { id: `${prefix}invert`, type: "checkbox" });
  const canvas = createElement("canvas", { width: 28, height: 28 });
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", "Preview of the image to be sent");
  const preview = createElement("div", { className: "preview", hidden: true }, canvas,
    createElement("p", { className: "note" }, "The image is sent in grey, from 0 (black) to 255 (white)."));
  let picture = null;
  const drawPreview = () => {
    if (picture === null) return;
    [canvas.width, canvas.height] = [Number(width.value), Number(height.value)];
    const context = canvas.getContext("2d", { willReadFrequently: true });
    context.drawImage(picture, 0, 0, canvas.width, canvas.height);
    const imageData = context.getImageData(0, 0, canvas.width, canvas.height);
    imageData.data.forEach((_, i, data) => { if (i % 4 === 0) convertToGrey(data, i, invert.checked); });
    context.putImageData(imageData, 0, 0);
    preview.hidden = false;
  };
  file.addEventListener("change", async () => {
    picture = file.files.length ? await createImageBitmap(file.files[0]).catch(() => null) : null;
    preview.hidden = picture === null;
    drawPreview();
  });
  for (const input of [width, height, invert]) input.addEventListener("change", drawPreview);
  const element = createElement("div", {}, createElement("label", { htmlFor: file.id }, "Image"), file,
    createElement("div", { className: "sizes" },
      createElement("div", {}, createElement("label", { htmlFor: width.id }, "Width"), width),
      createElement("div", {}, createElement("label", { htmlFor: height.id }, "Height"), height)),
    createElement("label", { className: "check" }, invert, "Invert (dark on light)"), preview);
  return {
    element,
    body: () => {
      if (picture === null) throw new Error("Choose an image.");
      return { images: [readPixels(canvas)] };
    },
  };
}

/** Replace the pixel at offset `i` by its grey value on a black background. */
function convertToGrey(data, i, inverted) {
  const opacity = data[i + 3] / 255;
  const luminance = 0.299 * data[i] + 0.587 * data[i + 1] + 0.114 * data[i + 2];
  const grey = Math.round(luminance * opacity + (inverted ? 255 : 0) * (1 - opacity));
  data[i] = data[i + 1] = data[i + 2] = inverted ? 255 - grey : grey;
  data[i + 3] = 255;
}

function readPixels(canvas) {
  const { width, height } = canvas;
  const data = canvas.getContext("2d").getImageData(0, 0, width, height).data;
  return Array.from({ length: height }, (_, y) =>
    Array.from({ length: width }, (_, x) => data[4 * (y * width + x)]));
}

/** Return the view of one answer: label, probability, confidence, charge and noisy votes. */
export function answerView(reply, classes, ms) {
  const chips = [
    reply.charged ? "used 1 answer" : "repeated, not charged",
    `${numberFormat.format(reply.left)} remaining`,
    `${numberFormat.format(ms)} ms`,
  ];
  if (reply.votes === undefined) return targetView(reply, chips);
  const votes = reply.votes === null ? null : reply.votes[0];
  const shares = reply.probabilities?.[0] ?? null;
  if (reply.confidence !== null && reply.confidence[0] !== null) chips.unshift(describeConfidence(reply.confidence[0]));
  if (shares !== null) chips.unshift(`probability ${formatPercent(shares[classes.indexOf(reply.labels[0])])}`);
  const verdict = createElement("p", { className: "verdict" }, createElement("strong", {}, String(reply.labels[0])),
    ...chips.map((text) => createElement("span", { className: "chip" }, text)));
  const note = createElement("p", { className: "note" }, reply.votes === null
    ? "This store releases labels without votes."
    : votes === null ? "The private model gave this answer with sufficient confidence. No record was used and no budget was charged."
    : `Noisy votes of the neighbours${shares === null ? "" : ", and the probability of each class"}. `
      + "Confidence is the difference between the two highest votes, in standard deviations of the noise.");
  return createElement("div", {}, createElement("p", { className: "label" }, "Label"), verdict, ...(votes === null ? [] : [voteBars(votes, shares, reply.labels[0], classes)]), note);
}

function formatPercent(share) {
  return share < 0.001 ? "< 0.1 %" : `${numberFormat.format(100 * share)} %`;
}

/** Return the view of numbers with their errors, or of labels with their shares. */
function targetView(reply, chips) {
  const names = reply.targets ?? reply.names;
  const [values, errors] = [(reply.predictions ?? reply.shares)[0], reply.errors[0]];
  const lines = names.map((name, i) => createElement("p", { className: "verdict" },
    createElement("strong", {}, `${name}: ${numberFormat.format(values[i])}`),
    createElement("span", { className: "chip" }, `± ${numberFormat.format(errors[i])}`),
    ...(reply.labels?.[0].includes(name) ? [createElement("span", { className: "chip" }, "assigned")] : [])));
  const note = createElement("p", { className: "note" }, "Noisy mean of the records near the query; "
    + "± is the standard error of the noise.");
  return createElement("div", {}, createElement("p", { className: "label" }, reply.targets ? "Prediction" : "Shares"),
    ...lines, createElement("p", {}, ...chips.map((text) => createElement("span", { className: "chip" }, text))), note);
}

function describeConfidence(lead) {
  const level = lead < 1 ? "uncertain" : lead < 3 ? "likely" : "clear";
  return `confidence ${numberFormat.format(lead)} σ: ${level}`;
}

function voteBars(votes, shares, best, classes) {
  const minimum = Math.min(0, ...votes);
  const span = Math.max(0, ...votes) - minimum || 1;
  const zero = (100 * -minimum) / span;
  const probability = (i) => (shares === null ? "" : formatPercent(shares[i]));
  const list = createElement("div", { className: "votes" });
  list.style.setProperty("--zero", `${zero}%`);
  list.setAttribute("role", "img");
  list.setAttribute("aria-label", "Noisy votes: "
    + votes.map((vote, i) => `${classes[i]} ${numberFormat.format(vote)} ${probability(i)}`.trim()).join(", "));
  votes.forEach((vote, i) => {
    const style = classes[i] === best ? "best" : "";
    const length = (100 * Math.abs(vote)) / span;
    list.append(createElement("span", { className: style }, String(classes[i])),
      createElement("span", { className: "track" }, createBar(vote < 0 ? zero - length : zero, length, style)),
      createElement("span", { className: `number ${style}` }, numberFormat.format(vote)),
      createElement("span", { className: `number ${style}` }, probability(i)));
  });
  return list;
}

function createBar(start, length, style) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const rect = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  const attributes = { x: `${start}%`, width: `${length}%`, height: "100%", rx: 3, class: style };
  for (const [name, value] of Object.entries(attributes)) rect.setAttribute(name, value);
  svg.append(rect);
  return svg;
}
