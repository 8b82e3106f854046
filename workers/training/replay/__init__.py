"""What a judge of networks has computed for it: a training again, a published model's answers.

It reads published files and retained rows, and shares with the methods only what training is.
"""
