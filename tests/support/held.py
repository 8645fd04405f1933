"""What the devices of a schedule hold, counted by hand."""


def most_held_on(schedule):
    """[devices] the most micro-batches of all cells of a device, from F to B, or to W if split."""
    found = []
    for slots in schedule.devices:
        held = most = 0
        for slot in slots:
            held += schedule.runs_forward(slot)
            most = max(most, held)
            held -= schedule.adds_gradients(slot)
        found.append(most)
    return found
