// SPDX-License-Identifier: BSD-3-Clause
// OPAL's functions that gather and scatter the elements of a datatype, for GPU memory too.
#pragma once

#include "openmpi/binding/call_redirection.hpp"

namespace gpushm::openmpi {

/** Has calls of opal_convertor_pack, opal_convertor_unpack and opal_datatype_copy_content_same_ddt
 * come to us; those for host memory go on to Open MPI's own. find_opal() must have succeeded. */
void redirect_convertor_calls(CallRedirection *redirection);

}  // namespace gpushm::openmpi
