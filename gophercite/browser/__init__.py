"""WebGPT's text browser: state, commands, observations, pages and worlds (WebGPT, section 2, A)."""
