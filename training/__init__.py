"""How the pocket model's weights are made: data, model, training, export. Needs the [train] extra and a CUDA GPU.

python -m training.corpus --data DATA            # tokenizer, held-out problems, token stream
python -m training --data DATA --out OUT --seconds 500 [--resume CKPT]
"""
