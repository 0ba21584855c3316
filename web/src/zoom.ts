// Zoom into a picture: buttons, keys, Ctrl + wheel, and dragging once zoomed. The axes follow.
import { all, button, make, one } from "./dom";
import { coordinates } from "./hover";
import { axis, label, ticks } from "./ticks";

interface View { x: number; y: number; size: number }

const SVG = "http://www.w3.org/2000/svg";
const DEEPEST = 1 / 64;

export function zoom(inside: ParentNode = document): void {
  for (const chart of all<SVGSVGElement>(".chart[data-plot]", inside)) enable(chart);
}

function enable(chart: SVGSVGElement): void {
  const canvas = chart.closest<HTMLElement>(".canvas");
  const plot = one<SVGSVGElement>(".plot", chart);
  const axes = one<SVGGElement>(".axes", chart);
  const rules = one<SVGGElement>(".rules", chart);
  if (!canvas || !plot || !axes || !rules) return;
  const frame = (chart.dataset.plot ?? "").split(" ").map(Number) as [number, number, number, number];
  const original = [...axes.childNodes];
  const view: View = { x: 0, y: 0, size: 1 };

  const apply = (): void => {
    view.size = Math.min(1, Math.max(DEEPEST, view.size));
    view.x = Math.min(1 - view.size, Math.max(0, view.x));
    view.y = Math.min(1 - view.size, Math.max(0, view.y));
    const [, , width, height] = frame;
    plot.setAttribute("viewBox", `${view.x * width} ${view.y * height} ${view.size * width} ${view.size * height}`);
    canvas.classList.toggle("zoomed", view.size < 1);
    rules.toggleAttribute("hidden", view.size < 1);
    if (view.size === 1) axes.replaceChildren(...original);
    else redraw(chart, axes, original, view, frame);
  };
  const points = all<SVGPathElement>("[data-s]", plot).flatMap((path) => coordinates(path.getAttribute("d") ?? ""))
    .map(({ x, y }) => ({ x: x / frame[2], y: y / frame[3] }));
  /** A view without a single point would be a blank plot: it is moved to the point nearest its middle. */
  const keepData = (): void => {
    const inside = points.some(({ x, y }) => x >= view.x && x <= view.x + view.size && y >= view.y && y <= view.y + view.size);
    if (inside || !points.length) return;
    const [midX, midY] = [view.x + view.size / 2, view.y + view.size / 2];
    const near = points.reduce((best, one) => (Math.hypot(one.x - midX, one.y - midY) < Math.hypot(best.x - midX, best.y - midY) ? one : best));
    view.x = near.x - view.size / 2;
    view.y = near.y - view.size / 2;
  };
  const scale = (factor: number, atX = 0.5, atY = 0.5): void => {
    const before = view.size;
    view.size = Math.min(1, Math.max(DEEPEST, before * factor));
    view.x += atX * (before - view.size);
    view.y += atY * (before - view.size);
    keepData();
    apply();
  };
  const move = (x: number, y: number): void => {
    const before = { ...view };
    view.x += x * view.size;
    view.y += y * view.size;
    const wanted = { ...view };
    keepData();
    // Dragging stops where the data ends instead of jumping back to it.
    if (view.x !== wanted.x || view.y !== wanted.y) Object.assign(view, before);
    apply();
  };

  const controls = make("div", "", { class: "zoom", role: "group", "aria-label": "Zoom" });
  controls.append(
    button("+", "Zoom in", () => scale(0.5)),
    button("\u2212", "Zoom out", () => scale(2)),
    button("Reset", "Reset zoom", () => { view.x = view.y = 0; view.size = 1; apply(); }),
  );
  controls.addEventListener("keydown", (event) => {
    const steps: Record<string, [number, number]> = { ArrowLeft: [-0.2, 0], ArrowRight: [0.2, 0], ArrowUp: [0, -0.2], ArrowDown: [0, 0.2] };
    const step = steps[event.key];
    if (step) {
      event.preventDefault();
      move(...step);
    }
  });
  canvas.append(controls);
  chart.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    const box = plot.getBoundingClientRect();
    scale(event.deltaY < 0 ? 0.8 : 1.25, (event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height);
  }, { passive: false });
  drag(chart, plot, () => view.size < 1, move);
}

function drag(chart: SVGSVGElement, plot: SVGSVGElement, allowed: () => boolean, move: (x: number, y: number) => void): void {
  let last: { x: number; y: number } | null = null;
  chart.addEventListener("pointerdown", (event) => {
    if (!allowed()) return;
    last = { x: event.clientX, y: event.clientY };
    chart.setPointerCapture(event.pointerId);
  });
  chart.addEventListener("pointermove", (event) => {
    if (!last) return;
    const box = plot.getBoundingClientRect();
    move((last.x - event.clientX) / box.width, (last.y - event.clientY) / box.height);
    last = { x: event.clientX, y: event.clientY };
  });
  for (const end of ["pointerup", "pointercancel"]) chart.addEventListener(end, () => { last = null; });
}

function redraw(chart: SVGSVGElement, axes: SVGGElement, original: Node[], view: View, frame: [number, number, number, number]): void {
  const [left, top, width, height] = frame;
  const [x, y] = [axis(chart.dataset.x), axis(chart.dataset.y)];
  if (!x || !y) return;
  const bottom = 1 - view.y - view.size;
  const marks: Element[] = [];
  for (const tick of ticks(y, bottom, bottom + view.size, 5)) {
    const at = top + (1 - (tick.at - bottom) / view.size) * height;
    marks.push(line("grid", left, left + width, at), text(label(tick.value), left - 8, at + 3.5, "end"));
  }
  marks.push(line("base", left, left + width, top + height));
  if (chart.dataset.names !== undefined) {
    for (const node of original) {
      if (!(node instanceof SVGTextElement) || node.getAttribute("text-anchor") !== "middle") continue;
      const at = left + ((Number(node.getAttribute("x")) - left) / width - view.x) / view.size * width;
      if (at < left || at > left + width) continue;
      const moved = node.cloneNode(true) as SVGTextElement;
      for (const part of [moved, ...moved.querySelectorAll("tspan")]) part.setAttribute("x", String(at));
      marks.push(moved);
    }
  } else {
    for (const tick of ticks(x, view.x, view.x + view.size, 6)) {
      marks.push(text(label(tick.value), left + (tick.at - view.x) / view.size * width, top + height + 16, "middle"));
    }
  }
  axes.replaceChildren(...marks);
}

function line(name: string, x1: number, x2: number, y: number): Element {
  return svg("line", { class: name, x1, x2, y1: y, y2: y });
}

function text(content: string, x: number, y: number, anchor: string): Element {
  const element = svg("text", { class: "tick", x, y, "text-anchor": anchor });
  element.textContent = content;
  return element;
}

function svg(name: string, attributes: Record<string, string | number>): Element {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
  return element;
}
