// What the cache did, and what it uses now.
/** The figures of the data directory. */
export function Overview() { return <h1>Overview</h1>; }
