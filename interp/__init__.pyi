"""The public names and where they live; `interp/__init__.py` imports each when it is first used."""

from .analysis.causal.effect_results import (
    ComponentEffects as ComponentEffects,
)
from .analysis.causal.effects import (
    component_effects as component_effects,
)
from .analysis.causal.patching import (
    activation_patching as activation_patching,
    path_patching as path_patching,
)
from .analysis.causal.patching_results import (
    Patching as Patching,
)
from .analysis.causal.shapley import (
    shapley_values as shapley_values,
)
from .analysis.causal.shapley_results import (
    ShapleyValues as ShapleyValues,
)
from .analysis.circuits.composition import (
    CompositionScores as CompositionScores,
    composition_scores as composition_scores,
)
from .analysis.circuits.paths import (
    PathEffects as PathEffects,
    path_effects as path_effects,
)
from .analysis.circuits.score_sources import (
    ScoreSources as ScoreSources,
    score_sources as score_sources,
)
from .analysis.circuits.weights import (
    CopyingScores as CopyingScores,
    copying_scores as copying_scores,
    ov_circuit as ov_circuit,
    qk_circuit as qk_circuit,
)
from .analysis.direct.attribution import (
    logit_attribution as logit_attribution,
)
from .analysis.direct.lens import (
    logit_lens as logit_lens,
    predictions as predictions,
)
from .analysis.direct.lens_results import (
    LogitLens as LogitLens,
    Predictions as Predictions,
)
from .analysis.direct.readers import (
    stream_attribution as stream_attribution,
)
from .analysis.direct.results import (
    LogitAttribution as LogitAttribution,
    StreamAttribution as StreamAttribution,
)
from .analysis.direct.single_head import (
    single_head_attribution as single_head_attribution,
)
from .analysis.heads.card_results import (
    HeadCard as HeadCard,
)
from .analysis.heads.cards import (
    head_card as head_card,
)
from .analysis.heads.change_points import (
    ChangePoint as ChangePoint,
    change_point as change_point,
)
from .analysis.heads.formation import (
    formation as formation,
)
from .analysis.heads.formation_results import (
    Formation as Formation,
)
from .analysis.heads.label_results import (
    HeadLabels as HeadLabels,
)
from .analysis.heads.labels import (
    label_heads as label_heads,
)
from .analysis.heads.patterns import (
    AttentionPatterns as AttentionPatterns,
    attention_patterns as attention_patterns,
)
from .analysis.heads.score_results import (
    HeadScores as HeadScores,
)
from .analysis.heads.scores import (
    head_scores as head_scores,
)
from .analysis.scaling.initial import (
    InitialAttention as InitialAttention,
    initial_attention as initial_attention,
)
from .analysis.scaling.rescaled import (
    attention_scaling as attention_scaling,
    scale_identity as scale_identity,
)
from .analysis.scaling.results import (
    AttentionScaling as AttentionScaling,
)
from .analysis.scaling.sweep import (
    scaling_sweep as scaling_sweep,
)
from .analysis.scaling.sweep_result import (
    ScalingSweep as ScalingSweep,
)
from .analysis.scaling.theory import (
    GradientStatistics as GradientStatistics,
    SoftmaxStatistics as SoftmaxStatistics,
    entropy_floor as entropy_floor,
    entropy_of_scores as entropy_of_scores,
    freezing_std as freezing_std,
    gradient_statistics as gradient_statistics,
    small_score_entropy as small_score_entropy,
    softmax_statistics as softmax_statistics,
)
from .analysis.self_test import (
    ModelChecks as ModelChecks,
    check_model as check_model,
)
from .data.corpus import (
    Corpus as Corpus,
    load_corpus as load_corpus,
)
from .data.repeated import (
    RepeatedTokens as RepeatedTokens,
    repeated_sequences as repeated_sequences,
)
from .errors import (
    CacheError as CacheError,
    CheckpointError as CheckpointError,
    CompletenessError as CompletenessError,
    ConfigError as ConfigError,
    HookError as HookError,
    InterpError as InterpError,
    NonFiniteLossError as NonFiniteLossError,
    OutputError as OutputError,
    TextError as TextError,
    TokenError as TokenError,
    TrainingError as TrainingError,
    TrainingInterrupted as TrainingInterrupted,
)
from .figures.marks import (
    Bars as Bars,
    Dots as Dots,
    HeatMap as HeatMap,
    Lines as Lines,
    Mark as Mark,
    Panels as Panels,
    Points as Points,
    Series as Series,
    Span as Span,
)
from .gpt.cache import (
    ActivationCache as ActivationCache,
)
from .gpt.config import (
    GPTConfig as GPTConfig,
)
from .gpt.folder import (
    model_hash as model_hash,
)
from .gpt.generate import (
    generate as generate,
)
from .gpt.model import (
    HookedGPT as HookedGPT,
)
from .gpt.presets import (
    cache_bytes as cache_bytes,
    hook_shapes as hook_shapes,
)
from .gpt.tokenizer import (
    CharTokenizer as CharTokenizer,
)
from .lesson.ladder import (
    LadderConfig as LadderConfig,
    LadderModel as LadderModel,
)
from .lesson.loading import (
    build_model as build_model,
    load_model as load_model,
)
from .lesson.ngrams import (
    NGramLosses as NGramLosses,
    ngram_losses as ngram_losses,
)
from .lesson.numpy_attention import (
    causal_attention as causal_attention,
)
from .lesson.reference import (
    ReferenceGPT as ReferenceGPT,
    from_reference as from_reference,
    to_reference as to_reference,
)
from .pages.comparison import (
    compare as compare,
)
from .pages.page import (
    write_report as write_report,
)
from .pages.plan import (
    report as report,
)
from .pages.reading import (
    read_report as read_report,
)
from .pages.study import (
    StudySection as StudySection,
    write_study as write_study,
)
from .results.intervals import (
    mean_interval as mean_interval,
)
from .results.provenance import (
    Provenance as Provenance,
)
from .results.result import Result as Result
from .results.shown import Finding as Finding, Shown as Shown
from .store import (
    CacheStore as CacheStore,
    write_cache as write_cache,
)
from .stream.interventions import (
    Intervention as Intervention,
    intervene as intervene,
)
from .stream.references import (
    ReferenceSet as ReferenceSet,
)
from .training.held_out import (
    corpus_of as corpus_of,
    held_out as held_out,
)
from .training.history import (
    TrainingHistory as TrainingHistory,
    training_history as training_history,
)
from .training.loop import (
    train as train,
)
from .training.losses import (
    validation_loss as validation_loss,
)
from .training.recipe import (
    Recipe as Recipe,
)

__version__: str
__all__: list[str]
