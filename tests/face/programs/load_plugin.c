/* usage: load_plugin [LIBRARY...] PLUGIN: loads the libraries globally, then the plugin, and runs
 * it. An argument "-" closes the library that was loaded last. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char** argv) {
  void* last = NULL;
  for (int i = 1; i < argc - 1; ++i) {
    if (strcmp(argv[i], "-") == 0) {
      dlclose(last);
    } else {
      last = dlopen(argv[i], RTLD_NOW | RTLD_GLOBAL);
      if (last == NULL) return puts(dlerror()), 1;
    }
  }
  void* plugin = dlopen(argv[argc - 1], RTLD_NOW | RTLD_LOCAL);
  if (plugin == NULL) return puts(dlerror()), 1;
  ((void (*)(void))dlsym(plugin, "plugin"))();
  return 0;
}
