"""The probe: measures any nn.Module while it trains, with one device→host transfer a step."""
