// The light layer on top of a page that is complete without it. It reads only what the page already shows.
import { claims } from "./claims";
import { copyButtons } from "./copy";
import { hover } from "./hover";
import { scrollers } from "./scrollers";
import { sortableTables } from "./tables";
import { theme } from "./theme";
import { zoom } from "./zoom";

for (const part of [theme, claims, sortableTables, copyButtons, scrollers, hover, zoom]) {
  part();
}
