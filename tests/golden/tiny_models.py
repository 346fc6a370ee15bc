#!/usr/bin/env python3
"""Tiny random models, one a family that has no trained model beside the tree: `tiny_models.py FAMILY OUT.gguf [--f32]`.

Owns: the table FAMILIES, a row a family, and writing a row as a GGUF. Does not own: goldens (tiny_goldens.py makes them), what is compared
(test_tiny.py). Python's standard library only.
Invariants: a row gives the same bytes everywhere: weights come from integers of a seeded generator and exact or correctly rounded arithmetic.
--f32 writes the same values as F32 (every format here widens exactly). A changed row needs another golden: goldens hold the file's hash.

A row is family(architecture, keys, tensors, ...). keys: hyperparameters without the architecture's prefix. tensors: texts in which every tensor
stands as `name columns [rows [matrices]]`, separated by commas; the second text is once a layer. Sizes are numbers or names from SIZES and the
row's own `sizes`; `layers` may give another text a layer. Values follow from the name (VALUES); formats from the name, too (FORMATS): every
family mixes F32, F16, BF16, Q8_0 and Q4_0, alike in all layers, so that a run compiles few kernels."""
import array
import hashlib
import math
import random
import re
import struct
import sys

N_VOCAB, N_CTX = 300, 512
SIZES = dict(d=64, v=N_VOCAB, h=64, k=32, hd=32, f=96, e=8, x=32)  # d_model, vocabulary, all heads, all k/v heads, head, d_ff, experts, their d_ff

HEAD = "token_embd.weight d v, output_norm.weight d, output.weight d v"
HEAD_TIED = "token_embd.weight d v, output_norm.weight d"
ATTENTION = "attn_norm.weight d, attn_q.weight d h, attn_k.weight d k, attn_v.weight d k, attn_output.weight h d"
QKV_BIAS = "attn_q.bias h, attn_k.bias k, attn_v.bias k"
QK_NORM = "attn_q_norm.weight hd, attn_k_norm.weight hd"
DENSE = "ffn_norm.weight d, ffn_gate.weight d f, ffn_up.weight d f, ffn_down.weight f d"
EXPERTS = "ffn_norm.weight d, ffn_gate_inp.weight d e, ffn_gate_exps.weight d x e, ffn_up_exps.weight d x e, ffn_down_exps.weight x d e"
BIASED_CHOICE = "exp_probs_b.bias e"
SHARED = "ffn_gate_shexp.weight d s, ffn_up_shexp.weight d s, ffn_down_shexp.weight s d"
FUSED_ATTENTION = "attn_norm.weight d, attn_qkv.weight d qkv, attn_output.weight h d"
NEXTN = "nextn.eh_proj.weight 128 d, nextn.enorm.weight d, nextn.hnorm.weight d, layer_output_norm.weight d"

NEXTN_GLM = "nextn.eh_proj.weight 128 d, nextn.enorm.weight d, nextn.hnorm.weight d, nextn.shared_head_norm.weight d"
DENSE_GLM, EXPERTS_GLM = DENSE.replace("ffn_norm", "post_attention_norm"), EXPERTS.replace("ffn_norm", "post_attention_norm")
GLM4MOE = ATTENTION, QKV_BIAS, QK_NORM, EXPERTS_GLM, BIASED_CHOICE, SHARED

MOE = {"expert_count": 8, "expert_used_count": 3, "expert_feed_forward_length": 32}
LEAD = {"leading_dense_block_count": 1}
GRANITE = {"embedding_scale": 1.5, "residual_scale": 0.75, "attention.scale": 0.25, "logit_scale": 0.8}

SHARED_GATED = "ffn_gate_inp_shexp.weight d, ffn_gate_shexp.weight d x, ffn_up_shexp.weight d x, ffn_down_shexp.weight x d"
# Gated DeltaNet: 2 key heads and 4 heads of 32; every second layer attends, with an output gate. qk, vv: q's or k's, and v's, columns.
GATED = "attn_norm.weight d, attn_q.weight d hh, attn_k.weight d k, attn_v.weight d k, attn_output.weight h d"
DELTA = "attn_norm.weight d, ssm_conv1d.weight 4 qkv, ssm_dt.bias vh, ssm_a vh, ssm_norm.weight hd, ssm_out.weight vv d"
DELTA_APART = "attn_qkv.weight d qkv, attn_gate.weight d vv, ssm_alpha.weight d vh, ssm_beta.weight d vh"
DELTA_FUSED = "ssm_in.weight d qkvz, ssm_ba.weight d ba"
DELTA_SIZES = dict(hh=128, qkv=256, qkvz=384, vv=128, vh=4, ba=8)
DELTA_KEYS = {"ssm.conv_kernel": 4, "ssm.state_size": 32, "ssm.group_count": 2, "ssm.time_step_rank": 4, "ssm.inner_size": 128,
              "full_attention_interval": 2, "rope.dimension_count": 16}
SECTIONS = {"rope.dimension_sections": [3, 3, 2, 0]}
EXPERT_KEYS = {"expert_count": 8, "expert_used_count": 2, "expert_feed_forward_length": 32}
POST = [text.replace("ffn_norm", "post_attention_norm") for text in (DENSE, EXPERTS)]


def family(architecture, keys, once, *layer, layers=3, seed=1, per_layer=None, recurrent=False, half_gelu=False, tokenizer=None, **sizes):
    """keys override the usual ones (None leaves one out), tokenizer those of vocabulary(). per_layer: {layer: texts} for layers unlike the others. half_gelu: the peer takes GELU from a
    table of f16 by f16; with the same rounding the oracle differs by 4e-5 on average, 5e-4 at most."""
    return dict(architecture=architecture, keys=keys, once=once, layer=layer, layers=layers, seed=seed, per_layer=per_layer or {},
                recurrent=recurrent, half_gelu=half_gelu, tokenizer=tokenizer or {}, sizes={**SIZES, **sizes})


def hybrid(architecture, keys, inputs, *ffn, seed):
    return family(architecture, {**DELTA_KEYS, **keys}, HEAD, DELTA, inputs, *ffn, per_layer={1: [GATED, QK_NORM, *ffn]}, seed=seed, recurrent=True,
                  **DELTA_SIZES)


GEMMA = "post_attention_norm.weight d, post_ffw_norm.weight d"
GEMMA4_LOCAL = ATTENTION + ", " + QK_NORM
GEMMA4_FULL = ("attn_norm.weight d, attn_q.weight d 256, attn_k.weight d 64, attn_output.weight 256 d, attn_q_norm.weight 64, "
               "attn_k_norm.weight 64")  # no v: it is k
GEMMA4_EXPERTS = ("ffn_gate_inp.weight d e, ffn_gate_inp.scale d, pre_ffw_norm_2.weight d, post_ffw_norm_1.weight d, post_ffw_norm_2.weight d, "
                  "ffn_gate_up_exps.weight d 64 e, ffn_down_exps.weight x d e, ffn_down_exps.scale e")
LATENT = "attn_norm.weight d, attn_kv_a_mqa.weight d cr, attn_kv_a_norm.weight c, attn_output.weight hv d"

FAMILIES = {
    "gemma3": family("gemma3", {"attention.sliding_window": 40, "rope.freq_base": 1000000.0, "rope.scaling.type": "linear", "rope.scaling.factor": 8.0},
                     HEAD, ATTENTION, QK_NORM, DENSE, GEMMA, layers=7, half_gelu=True, seed=1),
    "gemma4": family("gemma4", {"attention.sliding_window": 40, "attention.sliding_window_pattern": [True, True, False], "attention.key_length": 64,
                                "attention.value_length": 64, "attention.key_length_swa": 32, "attention.value_length_swa": 32, "attention.head_count": 4,
                                "attention.head_count_kv": [2, 2, 1], "rope.dimension_count": 64, "rope.dimension_count_swa": 32,
                                "rope.freq_base": 1000000.0, "rope.freq_base_swa": 10000.0, "embedding_length_per_layer_input": 0,
                                "final_logit_softcapping": 30.0, "feed_forward_length": [96, 96, 64]},
                     HEAD + ", rope_freqs.weight 32", GEMMA4_LOCAL, DENSE, GEMMA, "layer_output_scale.weight 1",
                     per_layer={2: (GEMMA4_FULL, "ffn_norm.weight d, ffn_gate.weight d 64, ffn_up.weight d 64, ffn_down.weight 64 d", GEMMA,
                                    "layer_output_scale.weight 1")}, half_gelu=True, seed=1, h=128, k=64),
    "gemma4-moe": family("gemma4", {"attention.sliding_window": 40, "attention.sliding_window_pattern": [True, True, False], "attention.key_length": 64,
                                    "attention.value_length": 64, "attention.key_length_swa": 32, "attention.value_length_swa": 32,
                                    "attention.head_count": 4, "attention.head_count_kv": [2, 2, 1], "rope.dimension_count": 64,
                                    "rope.dimension_count_swa": 32, "rope.freq_base": 1000000.0, "rope.freq_base_swa": 10000.0,
                                    "embedding_length_per_layer_input": 0, "expert_count": 8, "expert_used_count": 3, "expert_feed_forward_length": 32,
                                    "final_logit_softcapping": 20.0},
                         HEAD + ", rope_freqs.weight 32", GEMMA4_LOCAL, DENSE, GEMMA, GEMMA4_EXPERTS,
                         per_layer={2: (GEMMA4_FULL, DENSE, GEMMA, GEMMA4_EXPERTS)}, half_gelu=True, seed=1, h=128, k=64),
    "deepseek2": family("deepseek2", {"attention.head_count_kv": 1, "attention.key_length": 96, "attention.value_length": 64, "attention.key_length_mla": 64,
                                      "attention.value_length_mla": 32, "attention.kv_lora_rank": 64, "attention.q_lora_rank": 96,
                                      "rope.dimension_count": 32, "rope.scaling.type": "yarn", "rope.scaling.factor": 4.0,
                                      "rope.scaling.original_context_length": 128, "rope.scaling.yarn_log_multiplier": 0.0707,
                                      "leading_dense_block_count": 1, "expert_count": 8, "expert_used_count": 3, "expert_shared_count": 2,
                                      "expert_feed_forward_length": 32, "expert_gating_func": 2, "expert_weights_norm": True, "expert_weights_scale": 2.5,
                                      "expert_group_count": 4, "expert_group_used_count": 2},
                        HEAD, LATENT, "attn_q_a.weight d cq, attn_q_a_norm.weight cq, attn_q_b.weight cq hq, attn_k_b.weight 32 c 4, attn_v_b.weight c 32 4",
                        EXPERTS, SHARED, "exp_probs_b.bias e",
                        per_layer={0: (LATENT, "attn_q_a.weight d cq, attn_q_a_norm.weight cq, attn_q_b.weight cq hq, attn_k_b.weight 32 c 4, attn_v_b.weight c 32 4", DENSE)},
                        seed=1, h=128, c=64, cr=96, cq=96, hq=256, hv=128, s=64),
    "deepseek2-kv_b": family("deepseek2", {"attention.head_count_kv": 4, "attention.key_length": 64, "attention.value_length": 32, "attention.kv_lora_rank": 64,
                                           "rope.dimension_count": 32, "leading_dense_block_count": 1, "expert_count": 4, "expert_used_count": 2,
                                           "expert_shared_count": 1, "expert_feed_forward_length": 32, "expert_weights_scale": 1.0},
                             HEAD, LATENT, "attn_q.weight d hq, attn_kv_b.weight c hq", EXPERTS, SHARED,
                             per_layer={0: (LATENT, "attn_q.weight d hq, attn_kv_b.weight c hq", DENSE)}, layers=26,  # the peer knows files without a q rank by this
                             seed=1, h=128, c=64, cr=96, hq=256, hv=128, s=32, e=4),
    "llama": family("llama", {"rope.dimension_count": 32}, HEAD + ", rope_freqs.weight 16", ATTENTION, DENSE, h=128, k=64, seed=7),
    "mixtral": family("llama", MOE | {"rope.dimension_count": 32, "feed_forward_length": 32}, HEAD, ATTENTION, EXPERTS, h=128, k=64, seed=1),
    "qwen2": family("qwen2", {}, HEAD_TIED, ATTENTION, QKV_BIAS, DENSE, seed=3),
    "qwen2moe": family("qwen2moe", MOE | {"expert_shared_feed_forward_length": 32}, HEAD, ATTENTION, QKV_BIAS, EXPERTS, SHARED_GATED, seed=1),
    # For text all sections of a rotation have the same position. The peer takes 0 for qwen2vl's epsilon, whatever the file says: differences from it
    # grow with the file's (measured from 1e-6 to 1e-3), so this one has next to none.
    "qwen2vl": family("qwen2vl", {"rope.dimension_sections": [4, 6, 6, 0], "attention.layer_norm_rms_epsilon": 1e-9}, HEAD_TIED, ATTENTION, QKV_BIAS, DENSE, seed=4),
    "qwen3vl": family("qwen3vl", {"rope.dimension_sections": [6, 5, 5, 0], "n_deepstack_layers": 2}, HEAD, ATTENTION, QK_NORM, DENSE, h=128, k=64,
                      seed=8),
    "qwen3vlmoe": family("qwen3vlmoe", MOE | {"rope.dimension_sections": [6, 5, 5, 0], "n_deepstack_layers": 2}, HEAD, ATTENTION, QK_NORM, EXPERTS,
                         h=128, k=64, seed=5),
    "olmoe": family("olmoe", MOE | {"feed_forward_length": 32}, HEAD, ATTENTION, "attn_q_norm.weight h, attn_k_norm.weight k", EXPERTS, k=64),
    "granite": family("granite", GRANITE, HEAD, ATTENTION, DENSE, h=128, k=64, seed=8),
    # 40 experts: no power of two
    "granitemoe": family("granitemoe", GRANITE | MOE | {"feed_forward_length": 32, "expert_count": 40, "expert_used_count": 5}, HEAD_TIED, ATTENTION,
                         EXPERTS, h=128, k=64, e=40, seed=4),
    "deepseek": family("deepseek", MOE | LEAD | {"expert_weights_scale": 1.5, "expert_shared_count": 2}, HEAD, ATTENTION, EXPERTS, SHARED,
                       per_layer={0: (ATTENTION, DENSE)}, k=64, s=64, seed=8),
    "dots1": family("dots1", MOE | LEAD | {"expert_gating_func": 2, "expert_weights_norm": True, "expert_weights_scale": 2.5, "expert_shared_count": 2},
                    HEAD, ATTENTION, QK_NORM, EXPERTS, BIASED_CHOICE, SHARED, per_layer={0: (ATTENTION, QK_NORM, DENSE)}, k=64, s=64, seed=2),
    # the last block is a NextN block: whole here; test_nextn.py takes it apart
    "glm4moe": family("glm4moe", MOE | LEAD | {"expert_gating_func": 2, "expert_weights_norm": True, "expert_weights_scale": 1.5, "expert_shared_count": 2,
                      "nextn_predict_layers": 1, "rope.dimension_count": 16}, HEAD, *GLM4MOE, per_layer={0: (ATTENTION, QKV_BIAS, QK_NORM, DENSE_GLM),
                      3: (*GLM4MOE, NEXTN_GLM)}, layers=4, k=64, s=64, seed=2),
    "ernie4_5": family("ernie4_5", {}, HEAD_TIED, ATTENTION, DENSE, h=128, k=64, seed=10),
    "ernie4_5-moe": family("ernie4_5-moe", MOE | LEAD | {"interleave_moe_layer_step": 1, "expert_shared_count": 2, "expert_shared_feed_forward_length": 64},
                           HEAD_TIED, ATTENTION, EXPERTS, BIASED_CHOICE, SHARED, per_layer={0: (ATTENTION, DENSE)}, h=128, k=64, s=64, seed=2),
    "glm4": family("glm4", {"rope.dimension_count": 16}, HEAD, ATTENTION, QKV_BIAS,
                   "post_attention_norm.weight d, ffn_norm.weight d, ffn_up.weight d ff, ffn_down.weight f d, post_ffw_norm.weight d",
                   h=128, k=64, ff=192),
    # rotations in sections: halves of a head's rotated columns are a pair then
    "glm4v": family("glm4", {"rope.dimension_count": 16, "rope.dimension_sections": [2, 3, 3, 0]}, HEAD, ATTENTION, QKV_BIAS,
                    "post_attention_norm.weight d, ffn_norm.weight d, ffn_up.weight d ff, ffn_down.weight f d, post_ffw_norm.weight d",
                    h=128, k=64, ff=192, seed=2),
    "bailingmoe2": family("bailingmoe2", MOE | LEAD | {"expert_gating_func": 2, "expert_weights_norm": True, "expert_weights_scale": 2.5,
                                                       "expert_shared_count": 1, "expert_shared_feed_forward_length": 32, "expert_group_count": 4,
                                                       "expert_group_used_count": 2, "nextn_predict_layers": 1, "rope.dimension_count": 16},
                          HEAD, FUSED_ATTENTION, QK_NORM, EXPERTS, BIASED_CHOICE, SHARED, layers=4,
                          per_layer={0: (FUSED_ATTENTION, QK_NORM, DENSE), 3: (FUSED_ATTENTION, QK_NORM, EXPERTS, BIASED_CHOICE, SHARED, NEXTN)},
                          qkv=128, s=32, seed=3),
    "hunyuan-moe": family("hunyuan-moe", MOE | {"feed_forward_length": 32, "expert_shared_count": 1, "expert_shared_feed_forward_length": 64}, HEAD_TIED,
                          ATTENTION, QK_NORM, EXPERTS, SHARED, h=128, k=64, s=64, seed=11),
    "hunyuan-dense": family("hunyuan-dense", {}, HEAD_TIED, ATTENTION, QK_NORM, DENSE, h=128, k=64, seed=10),
    "qwen35": hybrid("qwen35", SECTIONS, DELTA_APART, POST[0], seed=1),
    "qwen35moe": hybrid("qwen35moe", {**SECTIONS, **EXPERT_KEYS, "expert_shared_feed_forward_length": 32}, DELTA_APART, POST[1], SHARED_GATED, seed=2),
    "qwen3next": hybrid("qwen3next", {**EXPERT_KEYS, "expert_shared_feed_forward_length": 32}, DELTA_FUSED, POST[1], SHARED_GATED, seed=6),
}
# Tokens that are never sampled, although most of them are the likeliest at times.
FAMILIES["gemma4-suppress"] = {**FAMILIES["gemma4"], "tokenizer": {"suppress_tokens": [9, 133, 169, 206, 214, 242, 277, N_VOCAB - 1]}}


def keys_of(row):
    """The hyperparameters of a row: the usual ones, then its own."""
    s = row["sizes"]
    keys = {"block_count": row["layers"], "context_length": N_CTX, "embedding_length": s["d"], "feed_forward_length": s["f"],
            "attention.head_count": s["h"] // s["hd"], "attention.head_count_kv": s["k"] // s["hd"], "attention.key_length": s["hd"],
            "attention.value_length": s["hd"], "rope.dimension_count": s["hd"], "attention.layer_norm_rms_epsilon": 1e-5,
            "rope.freq_base": 10000.0, "vocab_size": N_VOCAB}
    keys.update(row["keys"])
    return {k: v for k, v in keys.items() if v is not None}


def tensors_of(row):
    """[(name, [columns, rows, matrices])], in the order of the file."""
    out = []

    def add(prefix, text):
        for item in filter(None, (i.split() for i in text.split(","))):
            out.append((prefix + item[0], [int(n) if n.isdigit() else row["sizes"][n] for n in item[1:]]))
    add("", row["once"])
    for layer in range(row["layers"]):
        for text in row["per_layer"].get(layer, row["layer"]):
            add(f"blk.{layer}.", text)
    return out


# ---- Values ----

def noise(rng, n):
    """n values of mean 0 and variance 1: sums of four uniform 16-bit integers, exactly the same everywhere."""
    u = array.array("H", rng.randbytes(8 * n))
    if sys.byteorder == "big":
        u.byteswap()
    scale = math.sqrt(3) / 65536
    return [(a + b + c + d - 131070) * scale for a, b, c, d in zip(u[0::4], u[1::4], u[2::4], u[3::4])]


# (pattern, mean, deviation; of a matrix the deviation is divided by the root of its columns). The first that fits. Deviations are chosen so that
# attention looks at some tokens more than at others, that experts are chosen by a margin, and that the best token stands out.
VALUES = [
    (r"rope_freqs", 4.0, 1.5),
    (r"norm[^.]*\.weight$", 1.0, 0.25),
    (r"ssm_a$", -1.0, 0.2),
    (r"exp_probs_b", 0.0, 0.15),
    (r"\.bias$", 0.0, 0.4),
    (r"ffn_gate_inp\.scale$", 8.0, 2.0),  # beside 1 / sqrt(d)
    (r"\.scale$|output_scale", 1.0, 0.25),
    (r"token_embd", 0.0, 4.0),
    (r"^output\.weight", 0.0, 4.0),
    (r"ffn_gate_inp", 0.0, 2.5),
    (r"attn_(q|k|qkv)\.", 0.0, 1.8),
    (r"attn_output|ffn_down", 0.0, 2.0),
    (r"", 0.0, 1.2),
]
FORMATS = [(r"conv1d", "F32"), (r"ffn_gate_inp|shexp", "BF16"), (r"attn_[qk]\.|ffn_gate", "F16"), (r"attn_v|ffn_up|token_embd|^output", "Q8_0"), (r"ffn_down", "Q4_0"), (r"", "F16")]
NUMBERS = {"F32": 0, "F16": 1, "Q4_0": 2, "Q8_0": 8, "BF16": 30}


def first(table, name):
    return next(row for row in table if re.search(row[0], name))


def half(x):
    return struct.unpack("<e", struct.pack("<e", x))[0]


def q8_0(x):
    """Blocks of 32: an f16 d, then 32 signed bytes; the value is d * byte."""
    out, wide = [], []
    for i in range(0, len(x), 32):
        d = half(max(map(abs, x[i:i + 32])) / 127) or 2.0 ** -14
        q = [max(-127, min(127, round(v / d))) for v in x[i:i + 32]]
        out.append(struct.pack("<e32b", d, *q))
        wide += [d * n for n in q]
    return b"".join(out), wide


def q4_0(x):
    """Blocks of 32: an f16 d, then 16 bytes with value i in the low and value i + 16 in the high half; the value is d * (n - 8)."""
    out, wide = [], []
    for i in range(0, len(x), 32):
        d = half(max(map(abs, x[i:i + 32])) / 7) or 2.0 ** -14
        q = [max(0, min(15, round(v / d) + 8)) for v in x[i:i + 32]]
        out.append(struct.pack("<e16B", d, *(a | b << 4 for a, b in zip(q[:16], q[16:]))))
        wide += [d * (n - 8) for n in q]
    return b"".join(out), wide


def encode(kind, x):
    """(bytes, the values that they stand for)"""
    if kind == "Q8_0":
        return q8_0(x)
    if kind == "Q4_0":
        return q4_0(x)
    if kind == "F16":
        data = struct.pack(f"<{len(x)}e", *x)
        return data, struct.unpack(f"<{len(x)}e", data)
    words = struct.unpack(f"<{len(x)}I", struct.pack(f"<{len(x)}f", *x))
    if kind == "BF16":
        words = [w >> 16 for w in words]  # toward zero
        return struct.pack(f"<{len(x)}H", *words), struct.unpack(f"<{len(x)}f", struct.pack(f"<{len(x)}I", *(w << 16 for w in words)))
    return struct.pack(f"<{len(x)}I", *words), struct.unpack(f"<{len(x)}f", struct.pack(f"<{len(x)}I", *words))


def tensor(row, name, dims, f32):
    """(format, bytes) of a tensor. Its values depend on the row's seed and its own name alone."""
    n = math.prod(dims)
    pattern, mean, deviation = first(VALUES, name)
    if len(dims) > 1:
        deviation /= math.sqrt(dims[0])
    rng = random.Random(f'{row["architecture"]} {row["seed"]} {name}')
    kind = first(FORMATS, name)[1] if len(dims) > 1 else "F32"
    data, wide = encode(kind, [mean + deviation * z for z in noise(rng, n)])
    return ("F32", struct.pack(f"<{n}f", *wide)) if f32 else (kind, data)


# ---- The file ----

def text(s):
    b = s.encode()
    return struct.pack("<Q", len(b)) + b


def value(v):
    """A metadata value behind its type: bool, int (u32), float (f32), str, or a list of one of these (ints: i32)."""
    if isinstance(v, bool):
        return struct.pack("<I?", 7, v)
    if isinstance(v, int):
        return struct.pack("<II", 4, v)
    if isinstance(v, float):
        return struct.pack("<If", 6, v)
    if isinstance(v, str):
        return struct.pack("<I", 8) + text(v)
    code, one = {bool: (7, lambda x: struct.pack("<?", x)), int: (5, lambda x: struct.pack("<i", x)),
                 float: (6, lambda x: struct.pack("<f", x)), str: (8, text)}[type(v[0])]
    return struct.pack("<IIQ", 9, code, len(v)) + b"".join(map(one, v))


def vocabulary():
    """Byte-level BPE: the bytes of ASCII in GPT-2's alphabet, one merge, fillers, an end token. No bytes above: the peer leaves tokens out of its
    log-probabilities while a character is incomplete."""
    tokens = [chr(b) if 33 <= b < 127 else chr(256 + b if b < 33 else 289) for b in range(128)] + ["th"]
    tokens += [f"<{i}>" for i in range(len(tokens), N_VOCAB - 1)] + ["<|endoftext|>"]
    return {"model": "gpt2", "pre": "gpt-2", "tokens": tokens, "token_type": [1] * (N_VOCAB - 1) + [3], "merges": ["t h"],
            "bos_token_id": N_VOCAB - 1, "eos_token_id": N_VOCAB - 1, "padding_token_id": N_VOCAB - 1, "add_bos_token": False}


def gguf(name, f32=False):
    """The bytes of a row's file."""
    row = FAMILIES[name]
    keys = {"general.architecture": row["architecture"], "general.name": f"tiny {name}", "general.alignment": 32}
    keys.update({f'{row["architecture"]}.{k}': v for k, v in keys_of(row).items()})
    keys.update({f"tokenizer.ggml.{k}": v for k, v in {**vocabulary(), **row["tokenizer"]}.items()})
    infos, data = [], bytearray()
    for tensor_name, dims in tensors_of(row):
        kind, content = tensor(row, tensor_name, dims, f32)
        infos.append(text(tensor_name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, NUMBERS[kind], len(data)))
        data += content + bytes(-len(content) % 32)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(infos), len(keys)) + b"".join(text(k) + value(v) for k, v in keys.items()) + b"".join(infos)
    return head + bytes(-len(head) % 32) + bytes(data)


def digest(data):
    return hashlib.sha256(data).hexdigest()


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4) or sys.argv[1] not in FAMILIES:
        sys.exit(f"usage: tiny_models.py FAMILY OUT.gguf [--f32]; families: {', '.join(FAMILIES)}")
    with open(sys.argv[2], "wb") as file:
        file.write(gguf(sys.argv[1], "--f32" in sys.argv))
