"""Direct and total effects of components, with what lies between them: what is kept and shown."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from interp.figures.marks import Dots, Panels, Points, Series
from interp.figures.palette import unit_of, with_unit
from interp.figures.ranges import near_zero
from interp.results import intervals
from interp.results.result import Result
from interp.results.shown import Finding, Shown, kept


@dataclass(frozen=True, kw_only=True, repr=False)
class ComponentEffects(Result):
    """Effects of replacing each component, one number per sequence, [component, sequence].

    Units are those of the metric: logits, or nats for log_prob, loss and kl.
    `rerun_error` is how far the model, run on from its middle with nothing replaced, was from its
    own logits; `overlap` how many sequences were also in the reference set.
    """

    AXES: ClassVar = {
        "direct": ("component", "sequence"),
        "direct_renormalised": ("component", "sequence"),
        "total": ("component", "sequence"),
        "layers": ("component",),
        "positions": ("position",),
    }
    NAMES: ClassVar = {"components": "component"}
    SECTION: ClassVar = "effects"
    HEADING: ClassVar = "What happens when a part is removed"
    direct: np.ndarray
    direct_renormalised: np.ndarray
    total: np.ndarray
    layers: np.ndarray
    positions: np.ndarray
    components: tuple[str, ...]
    ablate: str
    metric: str
    reference: str
    draws: int
    overlap: int
    rerun_error: float

    @property
    def layer_norm_part(self) -> np.ndarray:
        """Direct minus renormalised, [component, sequence]."""
        part: np.ndarray = self.direct - self.direct_renormalised
        return part

    @property
    def downstream_part(self) -> np.ndarray:
        """Renormalised minus total, [component, sequence]."""
        part: np.ndarray = self.direct_renormalised - self.total
        return part

    @kept
    def to_frame(self) -> pd.DataFrame:
        """Returns component, layer, then direct, total, layer_norm_part and downstream_part, each
        with _low and _high (95 %, over sequences), n, and signs_disagree: the intervals of direct
        and total lie on different sides of zero.
        """
        columns: dict[str, Any] = {"component": self.components, "layer": self.layers}
        for name in ("direct", "total", "layer_norm_part", "downstream_part"):
            mean, low, high = intervals.mean_interval(getattr(self, name), seed=self._seed)
            columns |= {name: mean, f"{name}_low": low, f"{name}_high": high}
        frame = pd.DataFrame(columns)
        frame["n"] = self.direct.shape[1]
        up = (frame.direct_low > 0) & (frame.total_high < 0)
        down = (frame.direct_high < 0) & (frame.total_low > 0)
        frame["signs_disagree"] = up | down
        return frame

    @kept
    def agreement(self) -> pd.DataFrame:
        """Returns how direct and total effects agree, per layer and pooled ("all").

        Columns: layer, n (components), pearson, spearman, slope (of total on direct), each with
        _low and _high: 95 % percentile intervals over resampled sequences. A layer with fewer than
        three components has NaN: two points always correlate.
        """
        weights = intervals.bootstrap_weights(self.direct.shape[1], seed=self._seed).T
        groups = {str(layer): self.layers == layer for layer in np.unique(self.layers)}
        groups.pop("-1", None)
        groups["all"] = np.ones(len(self.layers), dtype=bool)
        return pd.DataFrame([self._agreement(*group, weights) for group in groups.items()])

    def _agreement(self, layer: str, which: np.ndarray, weights: np.ndarray) -> dict[str, Any]:
        x, y = self.direct[which], self.total[which]
        row: dict[str, Any] = {"layer": layer, "n": int(which.sum())}
        whole = intervals.correlations(x.mean(1), y.mean(1))
        drawn = intervals.correlations((x @ weights).T, (y @ weights).T)
        for i, statistic in enumerate(("pearson", "spearman", "slope")):
            known = x.shape[1] > 1 and bool(np.isfinite(drawn[i]).any())
            low, high = np.nanquantile(drawn[i], (0.025, 0.975)) if known else [np.nan] * 2
            row[statistic] = float(whole[i])
            row |= {f"{statistic}_low": low, f"{statistic}_high": high}
        return row

    @property
    def _seed(self) -> int:
        return self.provenance.seed or 0

    # ---- what it shows -------------------------------------------------------------------

    @property
    def name(self) -> str:
        """What its files are called."""
        return f"component-effects-{self.ablate}-{self.metric}"

    def figures(self) -> list[Shown]:
        """Returns direct and total effects with intervals; and one against the other, by layer."""
        n, draws = self.direct.shape[1], f", {self.draws} draws" if self.draws else ""
        how = (
            f"{self.ablate} ablation{draws}, reference: {self.reference}; metric: {self.metric}; "
            f"n = {n} sequences × {len(self.positions)} positions; bars: 95 % intervals over "
            f"sequences, seed {self._seed}"
        )
        name = f"effects-{self.ablate}-{self.metric}"
        caption = f"Direct and total effect of replacing each component ({how})."
        shown = [Shown(name=name, caption=caption, mark=self._dots())]
        if panels := self._panels():
            caption = (
                "Direct against total effect, layer by layer; on the line the two are equal. "
                f"Ringed: intervals on different sides of zero ({how})."
            )
            mark = Panels(marks=tuple(panels), columns=min(len(panels), 4))
            shown.append(Shown(name=f"{name}-by-layer", caption=caption, mark=mark))
        return shown

    def _dots(self) -> Dots:
        table = self.to_frame()
        near = near_zero(table[["direct", "total"]].to_numpy())
        series = tuple(
            Series(
                name=name, colour=colour, marker=marker, line=False, values=table[name].to_numpy(),
                low=table[f"{name}_low"].to_numpy(), high=table[f"{name}_high"].to_numpy(),
            )
            for name, colour, marker in (("direct", "for", "o"), ("total", "blue", "s"))
        )  # fmt: skip
        return Dots(
            names=self.components,
            series=series,
            label=f"effect on {with_unit(self.metric)}",
            scale="symlog" if near else "linear",
            linear_within=near,
        )

    def _panels(self) -> list[Points]:
        """One panel per layer; of layers with fewer than three components only if all are so."""
        table, agreement = self.to_frame(), self.agreement().set_index("layer")
        layers = [layer for layer in agreement.index if layer != "all"]
        layers = [layer for layer in layers if agreement.loc[layer, "n"] > 2] or layers
        return [self._points(table[table["layer"] == int(layer)], agreement.loc[layer].to_dict())
                for layer in layers]  # fmt: skip

    def _points(self, some: pd.DataFrame, rank: dict[Any, Any]) -> Points:
        n, layer = int(rank["n"]), int(some["layer"].iloc[0])
        title = f"layer {layer}: {n} component{'s' if n > 1 else ''}"
        if n > 2:
            title = (
                f"layer {layer}: rank correlation {rank['spearman']:.2f}\n"
                f"[{rank['spearman_low']:.2f}, {rank['spearman_high']:.2f}], {n} components"
            )
        columns = {name: some[name].to_numpy() for name in some.columns}
        near = near_zero(some[["direct", "total"]].to_numpy())
        return Points(
            names=tuple(some["component"]),
            x=columns["direct"], x_low=columns["direct_low"], x_high=columns["direct_high"],
            y=columns["total"], y_low=columns["total_low"], y_high=columns["total_high"],
            x_label=f"direct effect on {with_unit(self.metric)}",
            y_label="total effect",
            ringed=tuple(np.flatnonzero(columns["signs_disagree"]).tolist()),
            scale="symlog" if near else "linear",
            linear_within=near,
            title=title,
        )  # fmt: skip

    def summary(self) -> str:
        """Returns each part's effects with their intervals, and how direct and total agree."""
        n, n_pos = self.direct.shape[1], len(self.positions)
        lines = [
            f"effect on {self.metric} of replacing each part ({self.ablate}; reference: "
            f"{self.reference}); n = {n} sequences × {n_pos} positions; 95 % intervals, seed "
            f"{self._seed}; model {self.provenance.name or self.provenance.model[:8]}",
            f"{'part':<10} {'direct':>8} {'':<18} {'total':>8} {'':<18} {'LayerNorm':>10} "
            f"{'downstream':>10}",
        ]
        lines += [
            f"{row['component']:<10} {row['direct']:+8.4f} {_interval(row, 'direct'):<18} "
            f"{row['total']:+8.4f} {_interval(row, 'total'):<18} {row['layer_norm_part']:+10.4f} "
            f"{row['downstream_part']:+10.4f}{'  signs disagree' if row['signs_disagree'] else ''}"
            for row in self.to_frame().to_dict("records")
        ]
        lines.append("agreement of direct and total, over the parts of a layer:")
        lines += [
            f"  layer {row['layer']:<4} n = {row['n']:<3} Pearson {row['pearson']:+.2f} "
            f"{_interval(row, 'pearson', 2)}  Spearman {row['spearman']:+.2f} "
            f"{_interval(row, 'spearman', 2)}"
            for row in self.agreement().to_dict("records")
            if row["n"] > 2
        ]
        return "\n".join(lines)

    def finding(self) -> Finding:
        """Returns the part whose removal costs most, the embeddings aside, and how many parts
        matter more than they show: a total effect above twice the direct one, its interval above
        zero.
        """
        table = self.to_frame()
        parts = table[~table["component"].isin(("embed", "pos_embed"))]
        parts = table if parts.empty else parts
        most = parts.iloc[int(parts["total"].abs().to_numpy().argmax())].to_dict()
        above = table["total"] > 2 * table["direct"].clip(lower=0)
        hidden = int((above & (table["total_low"] > 0)).sum())
        name, unit = most["component"], unit_of(self.metric)
        text = (
            f"Of its blocks' parts, removing {name} costs most: {most['total']:.2f}"
            f"{f' {unit}' if unit else ''} {_interval(most, 'total', 2, '')}, of which it wrote "
            f"{most['direct']:.2f} itself. {hidden} of {len(table)} parts matter more than twice "
            "as much as they show directly."
        )
        return Finding(text=text, select=f"head={name}" if ".H" in name else "", rank=1)


def _interval(row: Mapping[Any, Any], name: str, digits: int = 4, sign: str = "+") -> str:
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    return "[unknown]" if math.isnan(low) else f"[{low:{sign}.{digits}f}, {high:{sign}.{digits}f}]"
