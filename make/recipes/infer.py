"""Has llama.cpp generate 16 tokens with model.gguf on 8 threads. For docs/recipes/llm.md."""
import xllamacpp

parameters = xllamacpp.CommonParams()
parameters.model.path = "model.gguf"
parameters.n_ctx, parameters.n_parallel, parameters.n_gpu_layers = 256, 1, 0
parameters.warmup = parameters.fit_params = False
parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 8
server = xllamacpp.Server(parameters)
answer = server.handle_completions({"prompt": "w1 w2 w3", "n_predict": 16, "ignore_eos": True, "seed": 1})
print(answer["usage"]["completion_tokens"], "tokens")
