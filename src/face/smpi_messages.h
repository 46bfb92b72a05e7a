// What SMPI's engine gets from the face: short messages that do not pass through MPI's calls.
#ifndef OVERDRIVE_SRC_FACE_SMPI_MESSAGES_H_
#define OVERDRIVE_SRC_FACE_SMPI_MESSAGES_H_

namespace od::smpi {
class Service;
}

namespace od::face {

void offer_short_messages(smpi::Service& service);

}  // namespace od::face

#endif  // OVERDRIVE_SRC_FACE_SMPI_MESSAGES_H_
