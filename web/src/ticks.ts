// Round values for an axis, as the server draws them, for a part of it that zoom shows.

export interface Axis { readonly low: number; readonly high: number; readonly log: boolean; readonly zero: boolean }

/** Where the server puts an exact zero on a logarithmic axis, and how much of the axis it keeps for it. */
const ZERO_AT = 0.03;
const ZERO_ROOM = 0.1;

export function axis(text: string | undefined): Axis | null {
  const [low, high, kind] = (text ?? "").split(" ");
  return low && high ? { low: Number(low), high: Number(high), log: kind !== "linear", zero: kind === "log0" } : null;
}

/** The share of the whole axis at which a value stands. */
export function share(whole: Axis, value: number): number {
  if (!whole.log) return (value - whole.low) / (whole.high - whole.low);
  if (whole.zero && value === 0) return ZERO_AT;
  const inner = Math.log10(value / whole.low) / Math.log10(whole.high / whole.low);
  return whole.zero ? ZERO_ROOM + (1 - ZERO_ROOM) * inner : inner;
}

/** Round values between two shares of the axis, each with its own share. */
export function ticks(whole: Axis, from: number, to: number, wanted: number): { value: number; at: number }[] {
  const values = round(value(whole, Math.max(from, whole.zero ? ZERO_ROOM : 0)), value(whole, to), whole.log, wanted);
  if (whole.zero && from <= ZERO_AT) values.unshift(0);
  return values.map((tick) => ({ value: tick, at: share(whole, tick) })).filter(({ at }) => at >= from && at <= to);
}

export function label(value: number): string {
  const text = value !== 0 && (Math.abs(value) < 1e-3 || Math.abs(value) >= 1e6) ? value.toExponential() : String(value);
  return text.replace("e+", "e").replace(/-/g, "\u2212");
}

function value(whole: Axis, at: number): number {
  if (!whole.log) return whole.low + at * (whole.high - whole.low);
  const inner = whole.zero ? (at - ZERO_ROOM) / (1 - ZERO_ROOM) : at;
  return whole.low * 10 ** (inner * Math.log10(whole.high / whole.low));
}

function round(low: number, high: number, log: boolean, wanted: number): number[] {
  if (log && Math.log10(high / low) > 2) {
    const first = Math.ceil(Math.log10(low));
    const last = Math.floor(Math.log10(high));
    const stride = Math.max(1, Math.ceil((last - first + 1) / wanted));
    return range(first, last, stride).map((k) => 10 ** k);
  }
  const span = high - low;
  const power = 10 ** Math.floor(Math.log10(span / wanted));
  const steps = [1, 2, 5, 10].map((factor) => factor * power);
  const step = steps.reduce((best, one) => (Math.abs(span / one - wanted) < Math.abs(span / best - wanted) ? one : best));
  return range(Math.ceil(low / step), Math.floor(high / step), 1).map((k) => Number((k * step).toPrecision(12)));
}

function range(first: number, last: number, stride: number): number[] {
  const found = [];
  for (let k = first; k <= last && found.length < 40; k += stride) found.push(k);
  return found;
}
