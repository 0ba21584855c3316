// The light layer on top of a page that is complete without it. It reads only what the page already shows.
import { claims } from "./claims";
import { copyButtons } from "./copy";
import { fold } from "./fold";
import { hover } from "./hover";
import { scrollers } from "./scrollers";
import { sortableTables } from "./tables";
import { theme } from "./theme";
import { zoom } from "./zoom";

const enhance = (inside: ParentNode): void => {
  for (const part of [sortableTables, copyButtons, scrollers, hover, zoom]) part(inside);
};
theme();
claims();
enhance(document);
fold(enhance);
