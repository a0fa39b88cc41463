'use strict'
// The rate limit: a ring buffer with the times of each key's last accepted requests.

class SlidingLog {
  constructor (limit, window) {
    this.limit = limit
    this.window = window
    this.rings = new Map()
  }

  // Return whether a request is accepted: fewer than `limit` were accepted in the last `window` seconds.
  accept (key) {
    let ring = this.rings.get(key)
    if (ring === undefined) {
      ring = { times: new Float64Array(this.limit).fill(-Infinity), next: 0 }
      this.rings.set(key, ring)
    }
    const now = performance.now() / 1000
    if (ring.times[ring.next] > now - this.window) return false
    ring.times[ring.next] = now
    ring.next = (ring.next + 1) % this.limit
    return true
  }
}

module.exports = { SlidingLog }
