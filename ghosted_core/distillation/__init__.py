"""Light distillation: what repairs a cut trains towards the unpruned model, and nothing else does.

`targets` say what is kept of the teacher and what the loss is, `student` what trains, `teaching` is the
teacher's one pass to disk (`store`), `training` the steps, `progress` what outlives a killed run, and
`finetuning` puts them together as the stage of a job.

    from ghosted_core.distillation.finetuning import finetune
"""
