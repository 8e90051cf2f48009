/* A sandbox's network: loopback only, and every port its to bind. */
#pragma once

void set_network_up(void);
void fresh_network(void);
