/* Runs the command line's program for an image's build; returns its exit status. */
#pragma once

int build(void);
