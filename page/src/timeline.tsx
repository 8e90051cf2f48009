// Rollouts in time.
/** The rollouts of a task in time. */
export function Timeline({ task }: { task: string }) { return task ? null : null; }
