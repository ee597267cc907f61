"""Clusters: routes to other servers (route.go), as far as the control plane has to do with them."""
