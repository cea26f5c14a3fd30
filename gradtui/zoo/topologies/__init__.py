"""How a residual branch f and a norm N make one sublayer. Forward is the formula of the paper.

Legend: B batch, T time, D width, n streams. A sublayer maps the model's state to the next one, and its output is
the stream leaving the site. The state is the tensor x_BTD; where a topology carries more it is a named tuple whose
first field is the stream that a probe measures. The norm that many stacks need after their last layer belongs to
the model (`parts.Topology.final_norm`), not to a sublayer.
"""
