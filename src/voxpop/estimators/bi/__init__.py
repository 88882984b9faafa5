"""BI: belief propagation over the workers' noise, and learning its noise model."""
