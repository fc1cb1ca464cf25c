// The compiled parts of Asio and Beast, once (BOOST_*_SEPARATE_COMPILATION; see CMakeLists.txt).
#include <boost/asio/impl/src.hpp>
#include <boost/beast/src.hpp>
