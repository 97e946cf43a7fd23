#include <iostream>

#include "cli/interrupt.h"
#include "cli/program.h"

int main(int argc, char** argv) {
  roundoff::cli::install_interrupt_handler();
  return roundoff::cli::run_program({argv, argv + argc}, std::cout, std::cerr);
}
