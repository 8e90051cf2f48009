/* Runs the program of the command line for an image's build; returns its exit status. */
#pragma once

int build(void);
