"""What a checkpoint holds, collected, copied and put back; `training_state.py` first."""
