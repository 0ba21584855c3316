// Shows the number under the pointer. The texts come from the table beside each picture, so they are the page's own.
import { all, make, one, parse } from "./dom";

interface Point { readonly x: number; readonly y: number; readonly text: string }

const NEAR = 28;

export function hover(inside: ParentNode = document): void {
  const tip = one<HTMLElement>(".tip") ?? make("div", "", { class: "tip", hidden: "", role: "status" });
  document.body.append(tip);
  const hide = (): void => { tip.hidden = true; };
  const show = (text: string, event: PointerEvent): void => {
    tip.textContent = text;
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const left = Math.min(event.clientX + 14, innerWidth - box.width - 8);
    const top = event.clientY - box.height - 12;
    tip.style.left = `${Math.max(8, left)}px`;
    tip.style.top = `${top < 8 ? event.clientY + 18 : top}px`;
  };
  const watch = (area: Element, find: (event: PointerEvent) => string | null): void => {
    area.addEventListener("pointermove", (event) => {
      const text = find(event as PointerEvent);
      if (text) show(text, event as PointerEvent);
      else hide();
    });
    area.addEventListener("pointerleave", hide);
  };

  for (const figure of all<HTMLElement>(".figure", inside)) {
    const chart = one<SVGSVGElement>(".chart", figure);
    if (!chart) continue;
    unname(chart);
    if (chart.classList.contains("heatmap")) watch(chart, (event) => cellText(figure, event.target as Element));
    else {
      let points: Point[] | null = null;
      watch(chart, (event) => nearest((points ??= plotted(figure)), chart, event));
    }
  }
  for (const strip of all<SVGSVGElement>("svg.strip", inside)) {
    unname(strip);
    watch(strip, (event) => seedText(strip, event.target as Element));
  }
}

/** A title inside an SVG is also a native tooltip; as a label it stays readable to assistive technology only. */
function unname(chart: SVGSVGElement): void {
  const title = chart.querySelector(":scope > title");
  if (!title) return;
  chart.setAttribute("aria-label", title.textContent ?? "");
  chart.removeAttribute("aria-labelledby");
  title.remove();
}

function plotted(figure: HTMLElement): Point[] {
  const heads = all("table.points thead th", figure).map((head) => head.textContent ?? "");
  const bodies = all<HTMLElement>("table.points tbody", figure);
  const plot = one<SVGSVGElement>(".plot", figure);
  const points: Point[] = [];
  for (const body of bodies) {
    const series = Number(body.dataset.at?.split(".").pop());
    const path = plot?.querySelector(`[data-s="${series}"]`);
    if (!path) continue;
    const places = coordinates(path.getAttribute("d") ?? "");
    const step = Number(body.dataset.step);
    const name = one(".of th", body)?.textContent ?? "";
    const rows = all<HTMLTableRowElement>("tr:not(.of)", body).filter((row) => drawable(figure, row));
    if (Math.ceil(places.length / step) !== rows.length) continue;
    rows.forEach((row, k) => {
      const place = places[k * step];
      const cells = [...row.cells].map((cell) => cell.textContent ?? "");
      if (!place) return;
      const band = cells[2] ? `\n${heads[2]} ${cells[2]}, ${heads[3]} ${cells[3]}` : "";
      points.push({ ...place, text: `${name}\n${heads[0]}: ${cells[0]}\n${heads[1]}: ${cells[1]}${band}` });
    });
  }
  return points;
}

function drawable(figure: HTMLElement, row: HTMLTableRowElement): boolean {
  const chart = one<SVGSVGElement>(".chart", figure);
  const fits = (text: string, domain: string | undefined): boolean => {
    const value = parse(text);
    return Number.isFinite(value) && (!domain?.includes("log") || value > 0 || (domain.endsWith("log0") && value === 0));
  };
  const [x, y] = [row.cells[0]?.textContent ?? "", row.cells[1]?.textContent ?? ""];
  return fits(y, chart?.dataset.y) && (chart?.dataset.names !== undefined || fits(x, chart?.dataset.x));
}

/** The points of a path: dots are written "Mx yh0", lines "Mx yLx y", bars "Mx yVyHxVyZ" (their top centre is taken). */
export function coordinates(d: string): { x: number; y: number }[] {
  if (d.includes("V")) {
    return [...d.matchAll(/M([\d.-]+) [\d.-]+V([\d.-]+)H([\d.-]+)/g)].map((m) => ({ x: (Number(m[1]) + Number(m[3])) / 2, y: Number(m[2]) }));
  }
  return [...d.matchAll(/[ML]([\d.-]+) ([\d.-]+)/g)].map((m) => ({ x: Number(m[1]), y: Number(m[2]) }));
}

function nearest(points: Point[], chart: SVGSVGElement, event: PointerEvent): string | null {
  const plot = one<SVGSVGElement>(".plot", chart);
  const matrix = plot && innerMatrix(plot);
  if (!matrix) return null;
  let best: Point | null = null;
  let least = NEAR;
  for (const point of points) {
    const at = new DOMPoint(point.x, point.y).matrixTransform(matrix);
    const distance = Math.hypot(at.x - event.clientX, at.y - event.clientY);
    if (distance < least) [best, least] = [point, distance];
  }
  return best?.text ?? null;
}

/** From the plot's own units to the screen, zoom included. */
function innerMatrix(plot: SVGSVGElement): DOMMatrix | null {
  const child = plot.querySelector<SVGGraphicsElement>("path, line");
  return child?.getScreenCTM() ?? null;
}

function cellText(figure: HTMLElement, target: Element): string | null {
  const cells = all(".cell:not(.key)", figure);
  const marks = all(".cell:not(.key), .in", figure);
  const mark = marks.indexOf(target);
  const index = target.classList.contains("in") ? cells.indexOf(marks[mark - 1] as Element) : cells.indexOf(target);
  const table = one<HTMLTableElement>(".twin table", figure);
  if (index < 0 || !table) return null;
  let rest = index;
  for (const row of table.tBodies[0]?.rows ?? []) {
    const width = row.cells.length - 1;
    if (rest < width) {
      const column = table.tHead?.rows[0]?.cells[rest + 1]?.textContent ?? "";
      return `${row.cells[0]?.textContent} · ${column}\n${row.cells[rest + 1]?.textContent}`;
    }
    rest -= width;
  }
  return null;
}

function seedText(strip: SVGSVGElement, target: Element): string | null {
  if (target.classList.contains("floor")) return target.textContent;
  if (target.tagName !== "circle" || !target.parentElement?.classList.contains("dots-by-seed")) return null;
  const index = [...target.parentElement.children].indexOf(target);
  const place = strip.closest<HTMLElement>("tr[data-in]")?.dataset.in;
  const row = one<HTMLTableRowElement>(`tr[data-at="${place}.values"]`, strip.closest(".finding") ?? document);
  if (!row || row.cells.length - 1 !== target.parentElement.children.length) return null;
  const seed = row.closest("table")?.tHead?.rows[0]?.cells[index + 1]?.textContent;
  return `seed ${seed}\n${row.cells[0]?.textContent}: ${row.cells[index + 1]?.textContent}`;
}
