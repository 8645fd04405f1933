"""A deep, narrow Transformer that does not train at a high learning rate without what keeps deep models stable.

The GPipe paper (arXiv:1811.06965, section 5) met sharp activations in deep Transformers and did two things about them: the first values
of feed-forward weights are divided by the number of layers, and logits are clipped.
"""
from __future__ import annotations

from lingpipe import optimizers, schedules
from lingpipe.experiment import Experiment
from lingpipe.learner import Learner
from lingpipe.pipeline.plan import PipelineParams
from lingpipe.registry import register
from lingpipe.train_loop import TrainLoop
from tasks.translation.random_tokens import RandomTokens
from tasks.translation.transformer import Transformer
from tasks.translation.translator import translator


@register
class DeepNarrow:
    """48 layers of 32 channels, Adam at a learning rate of 0.2, on sequences of which four fifths follow a rule.

        python -m lingpipe.trainer --model=translation.stability.DeepNarrow --logdir=/tmp/stable --set seed=0

    Without the two measures:

        --set task.model.divide_ffn_init_by_depth=false --set task.model.max_abs_logit=0
    """

    @classmethod
    def params(cls) -> Experiment.Params:
        network = Transformer.Params(num_encoder_layers=0, num_decoder_layers=48, vocab_size=64, model_dim=32, hidden_dim=256, num_heads=2,
                                     label_smoothing=0., divide_ffn_init_by_depth=True, max_abs_logit=10.)
        learner = Learner.Params(optimizer=optimizers.Adam.Params(beta_1=0.9, beta_2=0.98, epsilon=1e-9),
                                 learning_rate=schedules.Constant.Params(rate=0.2, warmup_steps=50))
        return Experiment.Params(
            task=translator(network, learner),
            train_input=RandomTokens.Params(batch_size=16, vocab_size=64, target_length=16, rule_rate=0.8),
            pipeline=PipelineParams(num_cells=2, num_micro_batches=2, recompute='none'),
            train=TrainLoop.Params(num_steps=200, checkpoint_every_steps=200))
