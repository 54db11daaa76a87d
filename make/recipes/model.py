"""Writes model.gguf: a language model of random weights, 300 MB. For docs/recipes/llm.md."""
import gguf
import numpy

LAYERS, WIDTH, HEADS, HIDDEN, TOKENS = 6, 1024, 16, 2816, 2000
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]

random = numpy.random.default_rng(1)
model = gguf.GGUFWriter("model.gguf", "llama")
model.add_context_length(512)
model.add_embedding_length(WIDTH)
model.add_block_count(LAYERS)
model.add_feed_forward_length(HIDDEN)
model.add_head_count(HEADS)
model.add_head_count_kv(HEADS)
model.add_layer_norm_rms_eps(1e-5)
model.add_rope_dimension_count(WIDTH // HEADS)
model.add_vocab_size(TOKENS)
words = [f"w{number}" for number in range(TOKENS - 3 - len(BYTES))]
kinds = gguf.TokenType
model.add_tokenizer_model("llama")
model.add_token_list(["<unk>", "<s>", "</s>", *BYTES, *words])
model.add_token_scores([-float(number) for number in range(TOKENS)])
model.add_token_types([kinds.UNKNOWN, *[kinds.CONTROL] * 2, *[kinds.BYTE] * len(BYTES), *[kinds.NORMAL] * len(words)])
model.add_unk_token_id(0)
model.add_bos_token_id(1)
model.add_eos_token_id(2)


def add(name, *shape):
    """A tensor of random weights; ones if it has one row."""
    random_weights = random.standard_normal(shape, dtype=numpy.float32) * numpy.float32(0.02)
    model.add_tensor(f"{name}.weight", random_weights if len(shape) > 1 else numpy.ones(shape, numpy.float32))


add("token_embd", TOKENS, WIDTH)
add("output_norm", WIDTH)
add("output", TOKENS, WIDTH)
for layer in range(LAYERS):
    for part in ("attn_norm", "ffn_norm"):
        add(f"blk.{layer}.{part}", WIDTH)
    for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
        add(f"blk.{layer}.{part}", WIDTH, WIDTH)
    for part in ("ffn_gate", "ffn_up"):
        add(f"blk.{layer}.{part}", HIDDEN, WIDTH)
    add(f"blk.{layer}.ffn_down", WIDTH, HIDDEN)
model.write_header_to_file()
model.write_kv_data_to_file()
model.write_tensors_to_file()
model.close()
