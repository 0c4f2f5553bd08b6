"""What runs are scheduled on: slots, nodes, placement, the cluster."""
