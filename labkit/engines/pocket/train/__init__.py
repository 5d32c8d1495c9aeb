"""How the pocket model's weights are made: data, model, training, export. Needs the [train] extra and a CUDA GPU.

python -m labkit.engines.pocket.train.corpus --data DATA            # tokenizer, held-out problems, token stream
python -m labkit.engines.pocket.train --data DATA --out OUT --seconds 500 [--resume CKPT]
"""
