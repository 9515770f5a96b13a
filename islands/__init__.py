"""Who proposes: strategies, mutation and crossover operators, models, Optuna samplers."""
