// What Python puts into the page (interp/pages/page.py, interp/figures/marks.py), for checking types.

type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
type Numbers = Float64Array | Float32Array;

interface Encoded {
  dtype: string;
  shape: number[];
  values?: (number | boolean | null)[];
  zlib?: string;
  planes?: number;
  quantum?: number;
}

interface Table {
  columns: string[];
  rows: Json[][];
}

interface ResultDocument {
  kind: string;
  name: string;
  table: string;
  [field: string]: any;
}

interface Palette {
  ramps: Record<string, number[][]>;
  colours: Record<string, string>;
  glyphs: Record<string, string>;
  units: Record<string, string>;
}

interface Figure {
  section: string;
  name: string;
  caption: string;
  table: string;
  mark: any;
}

interface PageDocument {
  title: string;
  config: { n_layers: number; n_heads: number };
  palette: Palette;
  results: ResultDocument[];
  tables: Record<string, Table>;
  figures: Figure[];
}

type ScaleKind = "linear" | "root" | "log" | "log2" | "symlog";

interface Scale {
  kind: ScaleKind;
  low: number;
  high: number;
  at: (x: number) => number;
  ticks: (n: number) => number[];
}

interface Box {
  left: number;
  right: number;
  top: number;
  bottom: number;
}

// Marks, decoded: arrays are typed arrays in which NaN is "nothing there".

interface HeatMapMark {
  mark: "HeatMap";
  title: string;
  values: Numbers;
  rows: string[];
  columns: string[];
  label: string;
  low: number;
  high: number;
  row_label: string;
  column_label: string;
  palette: string;
  scale: ScaleKind;
  numbers: string[][];
  strong_columns: number[];
  row_breaks: number[];
  column_breaks: number[];
  columns_are: "" | "positions";
}

interface BarsMark {
  mark: "Bars";
  title: string;
  names: string[];
  values: Numbers;
  label: string;
  digits: number | null;
}

interface SeriesMark {
  name: string;
  values: Numbers;
  low: Numbers | null;
  high: Numbers | null;
  colour: string;
  marker: string;
  line: boolean;
  dashed: boolean;
  tag: string;
  faint: boolean;
}

interface DotsMark {
  mark: "Dots";
  title: string;
  names: string[];
  series: SeriesMark[];
  label: string;
  scale: ScaleKind;
  linear_within: number;
  strong: number[] | null;
  empty: string;
}

interface PointsMark {
  mark: "Points";
  title: string;
  names: string[];
  x: Numbers;
  y: Numbers;
  x_label: string;
  y_label: string;
  x_low: Numbers | null;
  x_high: Numbers | null;
  y_low: Numbers | null;
  y_high: Numbers | null;
  ringed: number[];
  scale: ScaleKind;
  linear_within: number;
}

interface SpanMark {
  at: number;
  low: number | null;
  high: number | null;
  name: string;
}

interface LinesMark {
  mark: "Lines";
  title: string;
  x: Numbers;
  series: SeriesMark[];
  x_label: string;
  y_label: string;
  x_scale: ScaleKind;
  y_scale: ScaleKind;
  ticks: [number, string][];
  y_low: number | null;
  y_high: number | null;
  spans: SpanMark[];
  zero: boolean;
  dodge: boolean;
  legend: boolean;
}

interface PanelsMark {
  mark: "Panels";
  title: string;
  marks: OneMark[];
  columns: number;
  share: boolean;
}

type OneMark = HeatMapMark | BarsMark | DotsMark | PointsMark | LinesMark;
type Mark = OneMark | PanelsMark;

// What is handed to everything that draws.

interface Chosen {
  pos: number;
  head: string;
  by: string;
  colour: string;
  heads: string[];
  nPos: number;
  on: (place: Element, view: () => void) => void;
  set: (change: { pos?: number; head?: string; by?: string; colour?: string }) => void;
  restore: () => void;
  show: () => void;
}

interface Colours {
  ramp: (name: string, x: number) => number[];
  colour: (name: string) => string;
  visible: (character: string) => string;
  unit: (metric: string) => string;
}

interface Context {
  colours: Colours;
  selection: Chosen;
}

interface Limits {
  x?: [number, number];
  y?: [number, number];
}

interface DrawOptions {
  width: number;
  alone: boolean;
  limits?: Limits;
  say?: (row: number, column: number) => string;
}

// What the instruments look for among the results; each may be missing.

interface Part {
  by: string;
  components: string[];
  n: number;
  values: Numbers;
  total: Numbers;
  targets: Numbers;
  unit: string;
}

interface Passage {
  tokens: number[];
  characters: string[] | null;
  glyph: (token: number) => string;
  patterns: Numbers | null;
  parts: Record<string, Part>;
  predictions: null | {
    n: number;
    k: number;
    top: Numbers;
    topProb: Numbers;
    prob: Numbers;
    rank: Numbers;
  };
}
