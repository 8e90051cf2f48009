/* Services: processes whose root directory is a directory of the sandbox. */
#ifndef TVSNAP_ROOTS_H
#define TVSNAP_ROOTS_H

/* Mounts directories at other places in the sandbox; see TVSNAP_BINDS in init.c. `pairs`: source and target, a line
 * each. */
void bind_directories(char *pairs);

/* tvsnap-init enter, tvsnap-init begin, with the arguments after that word. Each returns an exit status if it fails. */
int enter_root(int argc, char **argv);
int begin_service(int argc, char **argv);

#endif
