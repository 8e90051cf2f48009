/* A sandbox's network: loopback only, and any process may bind any port. */
#pragma once

void set_network_up(void);
void fresh_network(void);
