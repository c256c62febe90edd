"""The workload of a start as data: order, plan, user, environment, variables, secrets, Java, start stages."""
