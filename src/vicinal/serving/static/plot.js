// The plot of what an audience has used since the process began: answers, and budgets by public points.

const SVG = "http://www.w3.org/2000/svg";
const percent = (share) => `${Math.round(100 * share)} %`;
const clock = (at) => new Date(1000 * at).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });

function make(tag, properties = {}, ...children) {
  const found = Object.assign(document.createElement(tag), properties);
  found.append(...children);
  return found;
}

/** Return the plot in a list, or an empty list where there is nothing to plot yet. */
export function usagePlot(name, planned, usage) {
  const [first, last] = [usage[0], usage.at(-1)];
  if (usage.length < 2 || last.at <= first.at || !planned) return [];
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 100 100");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", `${name}: from ${clock(first.at)} to ${clock(last.at)} answers used rose from `
    + `${percent(first.used / planned)} to ${percent(last.used / planned)} of the plan`
    + (last.wear === null ? "" : `; budgets used are at ${percent(last.wear)}`));
  svg.append(line(usage, (point) => point.used / planned, ""));
  if (last.wear !== null) svg.append(line(usage, (point) => point.wear ?? 0, "wear"));
  const words = last.wear === null ? "Line: answers used." : "Line: answers used. Dotted: budgets used, by public points.";
  return [make("figure", { className: "usage" }, svg,
    make("p", { className: "note axis" }, make("span", {}, clock(first.at)), make("span", {}, clock(last.at))),
    make("figcaption", { className: "note" }, `${words} Top: the whole plan. Since the service started.`))];
}

function line(usage, share, style) {
  const [begin, end] = [usage[0].at, usage.at(-1).at];
  const points = usage.flatMap((point, i) => {
    const x = (100 * (point.at - begin)) / (end - begin);
    const y = 100 * (1 - Math.min(1, share(point)));
    return i ? [`${x},${100 * (1 - Math.min(1, share(usage[i - 1])))}`, `${x},${y}`] : [`${x},${y}`];
  });
  const drawn = document.createElementNS(SVG, "polyline");
  drawn.setAttribute("points", points.join(" "));
  drawn.setAttribute("class", style);
  return drawn;
}
