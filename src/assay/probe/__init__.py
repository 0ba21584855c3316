"""Looking into a user's model without changing it.

``subject`` runs copies of it in two precisions, ``tree`` sees its inputs and outputs as named leaves, ``copies`` makes
the copies, ``trace`` watches every module by ``hooks``, ``blocks``, ``stream`` and ``samples`` find its depth and its
batch, ``rounding`` says what rounding alone does, ``containment`` turns a crash into a reason. The audits of symmetry,
sameness, dependence and credit stand on it.
"""
