"""API: a run in Python, as a notebook or a script has it, and as the trainer's commands use it.

    run = lp.start(Mine, logdir='logs/mine', num_cells=2)
    run.train(steps=20)
    run.evaluate()

    start.py       options as Python values, and what is trained
    open_run.py    OpenRun: the logdir that is held, the devices, the traced network
    run.py         Run: train, evaluate and look at one logdir
    arguments.py   what its methods refuse, with a word for users of Keras
    evaluating.py  a checkpoint on every eval input, or on the examples of a caller
    generating.py  texts that continue prompts
    watching.py    every new checkpoint on every eval input
    views.py       weights, the plan and the timeline, as a notebook shows them
"""
