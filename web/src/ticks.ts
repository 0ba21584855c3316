// Round values for an axis, as the server draws them, for a part of it that zoom shows.

export interface Axis { readonly low: number; readonly high: number; readonly log: boolean }

export function axis(text: string | undefined): Axis | null {
  const [low, high, kind] = (text ?? "").split(" ");
  return low && high ? { low: Number(low), high: Number(high), log: kind === "log" } : null;
}

/** The part of an axis between two shares of its length. */
export function part(whole: Axis, from: number, to: number): Axis {
  const inner = (value: number): number => (whole.log ? Math.log10(value) : value);
  const outer = (value: number): number => (whole.log ? 10 ** value : value);
  const [low, high] = [inner(whole.low), inner(whole.high)];
  return { low: outer(low + from * (high - low)), high: outer(low + to * (high - low)), log: whole.log };
}

export function ticks(shown: Axis, wanted: number): number[] {
  if (shown.log && Math.log10(shown.high / shown.low) > 2) {
    const first = Math.ceil(Math.log10(shown.low));
    const last = Math.floor(Math.log10(shown.high));
    const stride = Math.max(1, Math.ceil((last - first + 1) / wanted));
    return range(first, last, stride).map((k) => 10 ** k);
  }
  const span = shown.high - shown.low;
  const power = 10 ** Math.floor(Math.log10(span / wanted));
  const steps = [1, 2, 5, 10].map((factor) => factor * power);
  const step = steps.reduce((best, one) => (Math.abs(span / one - wanted) < Math.abs(span / best - wanted) ? one : best));
  return range(Math.ceil(shown.low / step), Math.floor(shown.high / step), 1).map((k) => Number((k * step).toPrecision(12)));
}

export function share(shown: Axis, value: number): number {
  if (!shown.log) return (value - shown.low) / (shown.high - shown.low);
  return Math.log10(value / shown.low) / Math.log10(shown.high / shown.low);
}

export function label(value: number): string {
  const text = value !== 0 && (Math.abs(value) < 1e-3 || Math.abs(value) >= 1e6) ? value.toExponential() : String(value);
  return text.replace("e+", "e").replace(/-/g, "\u2212");
}

function range(first: number, last: number, stride: number): number[] {
  const found = [];
  for (let k = first; k <= last && found.length < 40; k += stride) found.push(k);
  return found;
}
