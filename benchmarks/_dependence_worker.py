"""Audits every causal-LM type of the installed transformers with a tiny configuration; one JSON line each.

Run by ``benchmarks/dependence.py`` inside an environment that it made.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import logging
import os
import signal
import time
import warnings
from collections.abc import Iterator
from typing import Any

os.environ.update({"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "TOKENIZERS_PARALLELISM": "false"})

import torch

LENGTH, ROWS, VOCABULARY = 12, 2, 99
MOST_PARAMETERS = 8_000_000
SECONDS = 120
TINY: dict[str, Any] = {
    "hidden_size": 32, "n_embd": 32, "d_model": 32, "embed_dim": 32, "dim": 32, "embedding_size": 32, "model_dim": 32,
    "num_hidden_layers": 2, "n_layer": 2, "n_layers": 2, "num_layers": 2, "decoder_layers": 2, "encoder_layers": 2,
    "num_decoder_layers": 2, "num_encoder_layers": 2,
    "num_attention_heads": 4, "n_head": 4, "n_heads": 4, "num_heads": 4, "decoder_attention_heads": 4,
    "encoder_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "d_kv": 8, "attention_head_size": 8,
    "intermediate_size": 64, "n_inner": 64, "d_inner": 64, "d_ff": 64, "decoder_ffn_dim": 64, "encoder_ffn_dim": 64,
    "ffn_dim": 64, "ffn_hidden_size": 64, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16,
    "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_num_experts": 4,
    "moe_k": 2, "moe_topk": 2, "top_k_experts": 2, "n_group": 1, "topk_group": 1, "n_shared_experts": 1,
    "first_k_dense_replace": 1, "moe_layer_start_index": 1, "moe_num_shared_experts": 1,
    "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4, "v_head_dim": 8,
    "vocab_size": VOCABULARY, "max_position_embeddings": 64, "n_positions": 64, "max_seq_len": 64, "seq_length": 64,
    "n_ctx": 64, "sliding_window": 8, "attention_window": 8, "lru_width": 32, "state_size": 8, "time_step_rank": 4,
    "mamba_d_state": 8, "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_n_groups": 1, "mamba_expand": 2,
    "ssm_state_size": 8, "n_mamba_heads": 4, "mamba_num_heads": 4, "mamba_head_dim": 16, "chunk_size": 4,
    "mamba_chunk_size": 4, "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 8,
    "linear_value_head_dim": 8, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "is_decoder": True,
    "use_cache": False, "attention_hidden_size": 32, "hidden_dropout": 0.0, "rotary_dim": 4,
}  # fmt: skip
SPECIAL: dict[str, dict[str, Any]] = {
    "big_bird": {"attention_type": "original_full"},
    "bigbird_pegasus": {"attention_type": "original_full"},
    "mamba2": {"num_heads": 8, "head_dim": 8, "n_groups": 1},
    "reformer": {"attn_layers": ("local", "local"), "axial_pos_shape": (4, 3), "axial_pos_embds_dim": (16, 16),
                 "local_attn_chunk_length": 4, "feed_forward_size": 64},
    "xlnet": {"n_head": 4, "d_inner": 64},
    "openai-gpt": {"n_head": 4},
    "ctrl": {"dff": 64},
}  # fmt: skip


def main() -> None:
    """Audit the types named on the command line, or all of them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("types", nargs="*")
    parser.add_argument("--seeds", type=int, default=1)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    from transformers import __version__
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as NAMES

    print(json.dumps({"transformers": __version__, "torch": torch.__version__, "types": len(NAMES)}), flush=True)
    for kind, name in NAMES.items():
        if not options.types or kind in options.types:
            for seed in range(options.seeds):
                print(json.dumps({"type": kind, "class": str(name), "seed": seed, **one(kind, seed)}), flush=True)


def one(kind: str, seed: int) -> dict[str, Any]:
    """What the audit says of one type; a reason if it could not be built or run."""
    from assay import audit_dependence
    from assay import dependence as dep

    started = time.perf_counter()
    quiet = io.StringIO()
    try:
        with _limited(SECONDS), contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
            model = _build(kind, seed)
            tokens = torch.randint(3, VOCABULARY - 1, (ROWS, LENGTH), generator=torch.Generator().manual_seed(seed))
            finding = audit_dependence(model, tokens, dep.causal(), seed=seed, call=_logits, name=kind)
    except Exception as error:
        said = next(iter(str(error).strip().splitlines()), "")
        return {"verdict": "NOT BUILT", "reason": f"{type(error).__name__}: {said}"[:200]}
    moved = finding.measurement("largest movement of an output that must not move")
    return {
        "verdict": str(finding.verdict),
        "reason": finding.reason[:300],
        "location": finding.issues[0].location if finding.issues else "",
        "cause": finding.issues[0].cause if finding.issues else "",
        "moved": moved.value,
        "allclose": _allclose(model, tokens),
        "parameters": sum(p.numel() for p in model.parameters()),
        "seconds": round(time.perf_counter() - started, 2),
    }


def _logits(model: torch.nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    logits: torch.Tensor = model(input_ids=tokens).logits
    return logits


def _allclose(model: torch.nn.Module, tokens: torch.Tensor) -> float:
    """The usual test: the second half of the tokens changed, the largest movement of a logit in the first half."""
    other = tokens.clone()
    other[:, LENGTH // 2 :] = other[:, LENGTH // 2 :].flip(1).roll(1, 0)
    with torch.no_grad():
        gap = _logits(model.eval(), tokens) - _logits(model, other)
    return float(gap[:, : LENGTH // 2].abs().max())


def _build(kind: str, seed: int) -> torch.nn.Module:
    """The first way of making a tiny configuration that gives a model which runs."""
    problem: Exception | None = None
    for construct in (False, True):
        for left_out in ((), ("head_dim",), ("head_dim", "num_key_value_heads")):
            try:
                model = _tiny(kind, seed, construct, left_out)
                with torch.no_grad():
                    _logits(model, torch.full((1, LENGTH), 5))
                return model
            except TimeoutError:
                raise
            except Exception as error:
                problem = problem or error
    assert problem is not None
    raise problem


def _tiny(kind: str, seed: int, construct: bool, left_out: tuple[str, ...]) -> torch.nn.Module:
    from transformers import AutoConfig, AutoModelForCausalLM

    wanted = {n: v for n, v in {**TINY, **SPECIAL.get(kind, {})}.items() if n not in left_out}
    config = AutoConfig.for_model(kind)
    if construct:
        known = {n: v for n, v in wanted.items() if getattr(config, n, None) is not None}
        config = AutoConfig.for_model(kind, **known)
    else:
        for part in (config, getattr(config, "text_config", None)):
            if part is not None:
                _shrink(part, wanted)
    with torch.device("meta"):
        size = sum(p.numel() for p in AutoModelForCausalLM.from_config(config).parameters())
    if size > MOST_PARAMETERS:
        raise ValueError(f"still {size} parameters after shrinking")
    torch.manual_seed(seed)
    return AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()


def _shrink(config: Any, wanted: dict[str, Any]) -> None:
    layers = 2
    for name, value in wanted.items():
        if hasattr(config, name) and (getattr(config, name) is not None or name in ("pad_token_id",)):
            with contextlib.suppress(Exception):
                setattr(config, name, value)
    for name in ("layer_types", "layers_block_type", "mlp_layer_types"):
        value = getattr(config, name, None)
        if isinstance(value, list) and value:
            kinds = list(dict.fromkeys(value))
            with contextlib.suppress(Exception):
                setattr(config, name, (kinds * layers)[:layers])


@contextlib.contextmanager
def _limited(seconds: int) -> Iterator[None]:
    def late(number: int, frame: Any) -> None:
        raise TimeoutError(f"more than {seconds} s of CPU time")

    signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


if __name__ == "__main__":
    main()
