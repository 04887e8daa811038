// SPDX-License-Identifier: BSD-3-Clause
// Replacements of OPAL's functions that pack and unpack the elements of a datatype.
#pragma once

#include "openmpi/binding/call_redirection.hpp"

namespace gpushm::openmpi {

/** Redirects opal_convertor_pack, opal_convertor_unpack and opal_datatype_copy_content_same_ddt.
 * Calls on host memory are forwarded to Open MPI's functions. find_opal() must have succeeded. */
void redirect_convertor_calls(CallRedirection *redirection);

}  // namespace gpushm::openmpi
